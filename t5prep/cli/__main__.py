"""Run `t5prep` by `python -m t5prep.cli`."""

from t5prep.cli import main

if __name__ == "__main__":
    main()
