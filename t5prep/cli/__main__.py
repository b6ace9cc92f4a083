"""`python -m t5prep` is `t5prep`."""

from t5prep.cli import main

if __name__ == "__main__":
    main()
