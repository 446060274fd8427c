import unittest

from bulkhead_plugin import testing
from plugin import Counted, countdown, greet


class Plugin(unittest.TestCase):
    def test_a_greeting_names_who_is_greeted(self) -> None:
        self.assertEqual(greet("Ada"), "Hello, Ada!")

    def test_a_message_stops_the_countdown(self) -> None:
        with testing.host(steering=["stop"]) as host:
            self.assertEqual(countdown(10), Counted(9, ["stop"]))
        self.assertEqual(host.slept_ms, 1000)


if __name__ == "__main__":
    unittest.main()
