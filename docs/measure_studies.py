"""Run studies in full, keep their results, render their reports.

python docs/measure_studies.py width plateau   # about 25 minutes each on two cores
python docs/measure_studies.py                 # render every kept result again

Runs lie under runs/studies, where a stopped one goes on; studies/results/NAME gets result.json, and
report.md with its figures, rendered from it alone.
"""

import argparse
import shutil
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "studies" / "results"


def main() -> None:
    """Run what is named, then render everything that is kept."""
    from brorl.cli.study import Terminal
    from brorl.studies.runner.outcome import RESULT
    from brorl.studies.runner.report import REPORT, write_study_report
    from brorl.studies.runner.run import run_study
    from brorl.studies.runner.spec import make_spec

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", nargs="*")
    for name in parser.parse_args().studies:
        with Terminal() as terminal:
            found = run_study(make_spec(name), ROOT / "runs" / "studies" / name, terminal)
        (RESULTS / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(found["result"], RESULTS / name / RESULT)
        print(f"{name}: holds = {found['holds']}. {found['because']}")
    for kept in sorted(RESULTS.glob(f"*/{RESULT}")):
        write_study_report(kept.parent)
        (kept.parent / REPORT).unlink()  # the page repeats report.md with the figures inside


if __name__ == "__main__":
    main()
