import unittest

from plugin import smooth


class Plugin(unittest.TestCase):
    def test_smoothing_takes_the_mean_of_neighbours(self) -> None:
        self.assertEqual(smooth("t", [0.0, 3.0, 6.0, 0.0]).values, [1.5, 3.0, 3.0, 3.0])


if __name__ == "__main__":
    unittest.main()
