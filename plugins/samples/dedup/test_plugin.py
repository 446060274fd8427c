import unittest

from bulkhead_plugin import testing
from plugin import compared, find_duplicates

RECORDS = ["Ada Lovelace, London", "London: Ada Lovelace", "Alan Turing", "Allan Turring", "Grace Hopper"]


class FindDuplicates(unittest.TestCase):
    def test_doubtful_pairs_are_decided_by_the_user(self) -> None:
        with testing.host(answers={"pair-2-3": {"same": True}}) as host:
            report = find_duplicates(RECORDS, threshold=0.95)
        self.assertEqual(report.groups, [[0, 1], [2, 3]])
        self.assertEqual([key for key, _ in host.asked], ["pair-2-3"])
        self.assertEqual(host.reported[-1][:2], (5.0, 5.0))

    def test_a_decision_is_remembered(self) -> None:
        with testing.host(answers={"pair-2-3": {"same": True}}) as first:
            find_duplicates(RECORDS, threshold=0.95)
        with testing.host(kept=first.kept) as second:
            report = find_duplicates(RECORDS, threshold=0.95)
        self.assertEqual((report.groups, second.asked), ([[0, 1], [2, 3]], []))

    def test_without_a_user_they_are_reported(self) -> None:
        with testing.host(features=[]):
            report = find_duplicates(RECORDS, threshold=0.95)
        self.assertEqual(report.groups, [[0, 1]])
        self.assertEqual([(pair.first, pair.second) for pair in report.doubtful], [(2, 3)])

    def test_a_message_stops_the_search(self) -> None:
        with testing.host(steering=["stop"], features=[]):
            report = find_duplicates(RECORDS)
        self.assertEqual((report.complete, report.compared, report.messages), (False, 1, ["stop"]))

    def test_two_records_that_read_the_same_are_the_same(self) -> None:
        self.assertEqual(compared("Lovelace, ADA"), compared("Ada Lovelace"))


if __name__ == "__main__":
    unittest.main()
