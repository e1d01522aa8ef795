"""The WSGI application, as granian's workers load it.

Its metrics are told here, since they are counted in the worker.

A worker ends when the process that started it is gone, however that one ended; otherwise it would
hold the port, and the next start would fail.
"""

from __future__ import annotations

import os
import threading
import time

from django.core.wsgi import get_wsgi_application

from encrypted_records import metrics

#: Set by serve.run: the process whose end is ours.
SUPERVISOR = "API_SUPERVISOR_PID"
METRICS_PORT = "ERS_API_METRICS_PORT"
_CHECK_SECONDS = 0.5


def _end_with(supervisor: int) -> None:
    while os.getppid() == supervisor:
        time.sleep(_CHECK_SECONDS)
    # Nobody is left to be told anything; what was committed is on disk.
    os._exit(1)


os.environ.setdefault("DJANGO_SETTINGS_MODULE", "encrypted_records.server.settings")
application = get_wsgi_application()
if SUPERVISOR in os.environ:
    threading.Thread(
        target=_end_with, args=(int(os.environ[SUPERVISOR]),), name="supervisor", daemon=True
    ).start()
    if METRICS_PORT in os.environ:
        from encrypted_records.server import figures

        metrics.serve(int(os.environ[METRICS_PORT]), figures.registry)
