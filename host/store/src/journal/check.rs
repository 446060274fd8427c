//! Whether the journals of a store are whole, row by row.
//!
//! Must not read a store: the rows come in the order of their keys. Invariant: a journal is whole exactly when it has a
//! task, and its head names every piece that is there and no other.

use super::layout::{HEAD, check_piece};
use super::{JournalHead, TaskRef};
use crate::sled::Report;

/// See the module.
#[derive(Default)]
pub(crate) struct JournalCheck {
    /// The journal whose rows come: pieces that are still to come, and the number of the next.
    current: Option<(TaskRef, u32, u32)>,
}

impl JournalCheck {
    /// Whether this task's journal begins with the next row.
    pub(crate) fn is_new(&self, task: &TaskRef) -> bool {
        self.current.is_none_or(|(current, ..)| current != *task)
    }

    /// The next row. `has_task` is looked at where a journal begins.
    pub(crate) fn row(&mut self, task: &TaskRef, number: u32, row: &[u8], has_task: bool, report: &mut Report) {
        if self.is_new(task) {
            self.end(report);
            self.current = Some((*task, 0, 0));
            if !has_task {
                report.problem(format!("the journal of task {} belongs to no task", task.id));
            }
        }
        let wrong = |what: String| format!("the journal of task {}: {what}", task.id);
        match (&mut self.current, number) {
            (Some((_, left, next)), HEAD) => match JournalHead::decode(row) {
                Ok(head) => (*left, *next) = (head.rows, 1),
                Err(error) => report.problem(wrong(error.to_string())),
            },
            (Some((_, left, next)), number) if *left > 0 && number == *next => {
                (*left, *next) = (*left - 1, next.saturating_add(1));
                if let Err(error) = check_piece(row) {
                    report.problem(wrong(error.to_string()));
                }
            }
            _ => report.problem(wrong("its head does not name a piece that is there".to_owned())),
        }
    }

    /// No more rows of the current journal come.
    pub(crate) fn end(&mut self, report: &mut Report) {
        if let Some((task, left @ 1.., _)) = self.current.take() {
            report.problem(format!("the journal of task {}: {left} of its pieces are missing", task.id));
        }
    }
}
