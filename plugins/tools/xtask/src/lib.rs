//! What building the guests and running a first host take.
//!
//! Owns where things are in the repository, how other programs are run, and the compiler of the guests. Must not depend
//! on what authors' tools, tests or packages are made of: a visitor waits until this is compiled. The other commands
//! are in `xtask-commands`.

pub mod apt;
pub mod debian;
pub mod guests;
pub mod layout;
mod manifest;
pub mod serve;
pub mod steps;
pub mod toolchain;
