"""`python -m cairnmq` is the command `cairnmq`."""

from cairnmq.cli import start

if __name__ == "__main__":
    start()
