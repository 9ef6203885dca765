"""Workflows: HTCondor's DAG files and submit descriptions, run as growing BOTs.

`language` reads a DAG into an immutable model, `submit` a submit description into jobs.  `engine`
decides, without clock and files; `run` carries its actions out, and `journal` is what survives.
`reports` writes the files that DAGMan's users know.
"""
