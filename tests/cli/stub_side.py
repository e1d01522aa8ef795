"""A stand-in for the API or the proxy, to see what ``ers up`` does with sides that misbehave.

Usage: stub_side.py {api|proxy} BEHAVIOUR. It answers the status on the port that ``ers up`` gave
it. Behaviours: ``good``; ``stubborn`` ignores SIGTERM; ``worker`` leaves a process that ignores
SIGTERM behind; ``dies`` ends with exit code 7 once it has been asked twice; ``mute`` never
answers; ``refuses`` says why it cannot start.
"""

import os
import signal
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

from encrypted_records.cli.supervise.startup import end_with_parent

side, behaviour = sys.argv[1:]

SLEEPER = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"


class Handler(BaseHTTPRequestHandler):
    asked = 0

    def do_GET(self) -> None:
        Handler.asked += 1
        if behaviour == "dies" and Handler.asked == 2:
            os._exit(7)
        self.send_response(503 if behaviour == "mute" else 200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


end_with_parent()
if behaviour == "refuses":
    sys.exit("error: no database")
if behaviour == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if behaviour == "worker":
    subprocess.Popen([sys.executable, "-c", SLEEPER])
server = HTTPServer(("127.0.0.1", int(os.environ[f"ERS_{side.upper()}_PORT"])), Handler)
server.serve_forever()
