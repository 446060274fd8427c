//! Whether the journal of a call suffices to bring it back, and if not, why.
//!
//! Owns the reasons and their words, which operators read. Must not know who runs the call. Invariant: a call goes from
//! `Replay` to `Restart` at most once and never back.

use std::fmt;

use bulkhead_domain::text::Bytes;

/// What can be done with a call whose host stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Its journal is replayed, and it goes on where it was.
    Replay,
    /// It can only begin again.
    Restart(Reason),
}

/// Why a call can only begin again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its component uses WASI 0.3.
    Concurrent,
    /// It used a file.
    Files,
    /// Its settings are larger than the header of a journal takes.
    Settings { bytes_max: usize },
    /// Its journal got too long.
    Journal { bytes_max: u64 },
    /// Its journal got more entries than it may have.
    Entries { entries_max: u32 },
    /// It is sent a response that is too long to keep.
    Response { bytes_max: u64 },
    /// It is sent responses that do not fit into its memory.
    Memory,
    /// It is sent events as they happen.
    EventStream,
    /// It waits for something while the body of a request of its own is not complete.
    OpenRequest,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Concurrent => f.write_str("its component uses WASI 0.3"),
            Self::Files => f.write_str("it used a file of a granted directory"),
            Self::Settings { bytes_max } => {
                write!(f, "its settings and variables are larger than {}", Bytes(*bytes_max as u64))
            }
            Self::Journal { bytes_max } => write!(f, "its journal is larger than {}", Bytes(*bytes_max)),
            Self::Entries { entries_max } => write!(f, "its journal has more than {entries_max} entries"),
            Self::Response { bytes_max } => write!(f, "it was sent an HTTP response larger than {}", Bytes(*bytes_max)),
            Self::Memory => f.write_str("it was sent HTTP responses that do not fit into its memory"),
            Self::EventStream => f.write_str("it was sent a stream of events over HTTP"),
            Self::OpenRequest => f.write_str("it waited for something while it still wrote an HTTP request"),
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replay => f.write_str("replay"),
            Self::Restart(reason) => write!(f, "restart: {reason}"),
        }
    }
}
