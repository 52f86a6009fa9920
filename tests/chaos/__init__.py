"""What is killed, stopped or left at random moments under load loses no request and gives no wrong token.

Every test starts `jetway serve` whole. JETWAY_CHAOS=N does N times as much.
"""

import os

TIMES = int(os.environ.get("JETWAY_CHAOS", "1"))
