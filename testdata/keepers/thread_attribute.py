"""An attribute of a running threading.Thread keeps the items."""
# KEPT BY: threading._active
# KEPT BY: local self of run() (thread_attribute.py)
# KEPT BY: local self of _bootstrap() (threading.py)
# KEPT BY: local self of _bootstrap_inner() (threading.py)
import threading
import time

import case


class Worker(threading.Thread):
    def run(self):
        self.results = []
        for step in case.steps():
            self.results.append(case.item())


Worker().start()
while threading.active_count() > 1:
    time.sleep(0.1)
