"""What spark-submit runs: it wants a file of Python, not a command."""

from seep.cli.main import main

if __name__ == "__main__":
    main()
