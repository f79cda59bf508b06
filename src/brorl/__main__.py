"""`python -m brorl`: the command line, for a Python that is not first on the PATH."""

from brorl.cli.main import main

if __name__ == "__main__":
    main()
