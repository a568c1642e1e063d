"""Journals as tables: containers read into Arrow by numpy, without a step per record. Nothing is ever written."""
