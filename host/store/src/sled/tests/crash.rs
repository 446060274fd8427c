//! `kill -9` at random moments: what was acknowledged is found again.

use std::time::Duration;

use super::rounds;
use super::writer::{Acknowledged, kill_after, start, verify};

fn survives_kills(bytes: usize) {
    let dir = tempfile::tempdir().unwrap();
    let mut said = Acknowledged::new();
    for round in 0..rounds(2, 30) {
        let first = 1 + u64::from(round) * 1_000_000;
        let time = Duration::from_millis(u64::from(50 + round * 137 % 400));
        let more = kill_after(start(dir.path(), bytes, first, |_| {}), time);
        said.extend(more);
        verify(dir.path(), bytes, &said);
        // The check saw unacknowledged tasks too; they are not counted again.
        said.retain(|_, last| *last != '-');
        let known = super::writer::unacknowledged(dir.path(), &said);
        said.extend(known);
    }
}

#[test]
fn small_outputs_survive_kill_9() {
    survives_kills(200);
}

#[test]
fn outputs_of_40_kb_survive_kill_9() {
    survives_kills(40_000);
}

#[test]
fn outputs_of_200_kb_survive_kill_9() {
    survives_kills(200_000);
}
