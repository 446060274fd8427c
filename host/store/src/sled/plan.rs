//! What a group is made of before it is written.

use super::super::{Error, Usage};
use super::files::{FileName, NewFile};
use super::group::Group;
use super::keys::TaskKey;
use bulkhead_domain::requestor::Requestor;

/// What a group is made of, beside its writes.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) group: Group,
    /// Files that belong to a record once the group is durable.
    pub(super) files_new: Vec<NewFile>,
    /// Files that no record names any more once the group is durable.
    pub(super) files_gone: Vec<FileName>,
    /// What was counted, to be taken back if the group fails: who, more, less.
    pub(super) counted: Vec<(Requestor, Usage, Usage)>,
    /// Answers, given when the group is durable; refusals too, because they may rest on the group's own writes.
    pub(super) answers: Vec<CommitReply>,
    /// What journals grew by, in bytes, and why others were given up: to be counted once the group is durable.
    pub(super) growths: Vec<u64>,
    pub(super) demotions: Vec<String>,
    /// Journals of which rows are left once the group is durable.
    pub(super) left_journals: Vec<TaskKey>,
}

/// Sends one reply: what was decided, or why nothing could be written.
pub(super) type CommitReply = Box<dyn FnOnce(Result<(), Error>) + Send>;
