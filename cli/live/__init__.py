"""The live page of `toksplice up`: what the dashboards show, for one process, with nothing to install.

`page` puts it together: `history` keeps readings of the process's metrics, `view` and `alerts` say what they mean,
`exposition` writes them for Prometheus, `http` serves it all on loopback.
"""
