//! Texts of the host that a guest may read and that have to be the same in every version: a replay shows them again.
//!
//! Owns these texts alone. Invariant: none of them holds anything of the moment.

/// What the debug text of every stream's error is. That of the library or the operating system differs from version to
/// version.
pub(super) const STREAM_ERROR: &str = "error";

/// What a guest is told of a request that was sent and whose outcome nobody knows.
pub(super) const IN_DOUBT: &str =
    "in doubt: the host stopped after this request was sent, and whether it took effect is not known";

/// The same with what became of its second sending, where there was one.
pub(super) fn in_doubt(cause: Option<&str>) -> String {
    match cause {
        Some(cause) => format!("{IN_DOUBT}; it was sent again and not answered: {cause}"),
        None => IN_DOUBT.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_replays_show_again_never_change() {
        assert_eq!(STREAM_ERROR, "error");
        assert_eq!(
            IN_DOUBT,
            "in doubt: the host stopped after this request was sent, and whether it took effect is not known"
        );
        assert_eq!(in_doubt(None), IN_DOUBT);
        assert_eq!(in_doubt(Some("Why")), format!("{IN_DOUBT}; it was sent again and not answered: Why"));
    }
}
