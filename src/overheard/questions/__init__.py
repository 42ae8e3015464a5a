"""The questions: a file each, which holds all that is particular to it.

`overheard.questions.question` has the two types, `Question` and `Metric`, and finds the files:
those of this folder by their ``QUESTION``, and those of other packages by entry points of the group
``overheard.questions``. Everybody else asks these values and compares no name.
"""
