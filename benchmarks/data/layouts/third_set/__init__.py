"""Layouts of `heldout-3`: folders of people, chat files and traps, by a writer who had not read the code."""
