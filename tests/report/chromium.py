"""A headless Chromium for tests: opens one file, is asked and told things over a pipe."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from select import select
from time import monotonic

BINARY = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)

_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1300,900",
    "--remote-debugging-pipe",
)

# Moves the two pipes to 3 and 4, the numbers that Chromium expects, and becomes Chromium.
_LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(n), fcntl.F_DUPFD, 10) for n in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Chromium:
    """The DevTools protocol over file descriptors 3 and 4, which Chromium reads and writes.

    `complaints` collects uncaught errors, console errors and warnings, and what the content
    security policy refused.
    """

    def __init__(self, profile: Path, timeout_s: float = 60.0) -> None:
        self.complaints: list[str] = []
        self._timeout_s = timeout_s
        self._number = 0
        self._left = b""
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        ends = [str(theirs_in), str(theirs_out)]
        browser = [str(BINARY), *_OPTIONS, f"--user-data-dir={profile}"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH, *ends, *browser],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._session = None

    def __enter__(self):
        try:
            self._attach()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _attach(self):
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def __exit__(self, *error):
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def open(self, path: Path) -> None:
        self._call("Page.navigate", url=path.as_uri())
        self._until(lambda message: message.get("method") == "Page.loadEventFired")
        self.settle()

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        frame = "requestAnimationFrame"
        self.ask(
            f"new Promise(done => {frame}(() => {frame}(() => setTimeout(() => done(1), 50))))"
        )

    def ask(self, expression: str):
        """The value of a JavaScript expression; a promise is waited for."""
        found = self._call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise AssertionError(found["exceptionDetails"])
        return found["result"].get("value")

    def press(self, *keys: str) -> None:
        for key in keys:
            for kind in ("keyDown", "keyUp"):
                self._call(
                    "Input.dispatchKeyEvent",
                    type=kind,
                    key=key,
                    text=key if len(key) == 1 and kind == "keyDown" else "",
                )

    def media(self, **features: str) -> None:
        """E.g. media(type="print") or media(scheme="dark")."""
        scheme = {"name": "prefers-color-scheme", "value": features.get("scheme", "light")}
        self._call("Emulation.setEmulatedMedia", media=features.get("type", ""), features=[scheme])

    def size(self, width: int, height: int = 900) -> None:
        """Of the window, CSS pixels; 0 for what it was."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def _call(self, method: str, **params):
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        answer = self._until(lambda m: m.get("id") == number)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return answer["result"]

    def _until(self, wanted):
        deadline = monotonic() + self._timeout_s
        while True:
            while b"\0" in self._left:
                text, self._left = self._left.split(b"\0", 1)
                message = json.loads(text)
                self._hear(message)
                if wanted(message):
                    return message
            if not select([self._from], [], [], max(0.0, deadline - monotonic()))[0]:
                raise TimeoutError(f"Chromium said nothing for {self._timeout_s} s")
            more = os.read(self._from, 1 << 16)
            if not more:
                raise AssertionError("Chromium ended")
            self._left += more

    def _hear(self, message) -> None:
        params = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif message.get("method") == "Runtime.consoleAPICalled" and params["type"] in (
            "error",
            "warning",
        ):
            self.complaints.append(str(params["args"]))
        elif message.get("method") == "Log.entryAdded" and params["entry"]["level"] in (
            "error",
            "warning",
        ):
            self.complaints.append(str(params["entry"]))
