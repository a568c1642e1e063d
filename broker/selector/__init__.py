"""JMS selectors: parser, compiler and evaluation."""
