//! What is said about work that takes a person's patience.

use bulkhead_author_cli::progress::{self, Place};

use super::PROGRAM;

/// Does the work of a command and says what it is while it takes long: on a terminal in one line, elsewhere in a plain
/// line now and then.
pub async fn during<T>(what: &str, work: impl Future<Output = T>) -> T {
    progress::during(Place::Stderr(PROGRAM), || what.to_owned(), work).await
}
