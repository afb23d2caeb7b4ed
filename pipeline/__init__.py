"""The chassis that every worker and client runs on: ports, lifecycle, settings, telemetry, client.

Start reading at `pipeline.topology` (which topics there are and who reads them), then `pipeline.worker`.
"""
