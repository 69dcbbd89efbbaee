"""`python -m poolscope`: the command line, where the script `poolscope` is not on the path."""

from poolscope.cli import main

if __name__ == "__main__":
    main()
