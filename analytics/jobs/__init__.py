"""The questions operators ask of a journal, as Spark jobs: each gives a DataFrame."""
