//! Takes steps in a granted directory, straight through the interface: no library tidies the paths up before the host sees them.

use bulkhead_plugin::{Error, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wasip2::filesystem::preopens::get_directories;
use wasip2::filesystem::types::{Descriptor, DescriptorFlags, ErrorCode, OpenFlags, PathFlags};
use wasip2::io::streams::StreamError;

/// Bytes that are written at a time.
const CHUNK: usize = 4096;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Walk {
    /// The name of the granted directory.
    directory: String,
    /// Taken one after the other; one that fails stops none of the others.
    steps: Vec<Step>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "do", rename_all = "snake_case")]
enum Step {
    /// Reads up to 4096 bytes.
    Read {
        path: String,
    },
    /// Writes so many bytes from the beginning, or at the end.
    Write {
        path: String,
        bytes: usize,
        #[serde(default)]
        append: bool,
    },
    /// Writes so many bytes at an offset, without a stream.
    WriteAt {
        path: String,
        offset: u64,
        bytes: usize,
    },
    /// Gives a file this size.
    Resize {
        path: String,
        size: u64,
    },
    /// Makes so many empty files.
    Touch {
        prefix: String,
        count: usize,
    },
    Symlink {
        target: String,
        path: String,
    },
    Link {
        from: String,
        path: String,
    },
    /// `into` is another granted directory.
    Rename {
        from: String,
        path: String,
        into: Option<String>,
    },
    Mkdir {
        path: String,
    },
    Remove {
        path: String,
    },
    /// Removes a file while it is open, writes so many bytes to it, and keeps it open to the end.
    WriteRemoved {
        path: String,
        bytes: usize,
    },
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Walked {
    /// What came of each step: what was read, how many bytes were written, or the name of the error.
    results: Vec<String>,
}

pub(crate) fn run(Walk { directory, steps }: Walk) -> Result<Json<Walked>, Error> {
    let folder = granted(&directory)?;
    let mut held = Vec::new();
    let results = steps.into_iter().map(|step| take(&folder, step, &mut held).unwrap_or_else(|error| error)).collect();
    drop(held);
    Ok(Json(Walked { results }))
}

fn granted(name: &str) -> Result<Descriptor, Error> {
    let found = get_directories().into_iter().find(|(_, guest)| guest == name);
    found.map(|(folder, _)| folder).ok_or_else(|| Error::new(format!("there is no directory {name}")))
}

fn take(folder: &Descriptor, step: Step, held: &mut Vec<Descriptor>) -> Result<String, String> {
    let done = |result: Result<(), ErrorCode>| result.map(|()| "done".to_owned()).map_err(name);
    match step {
        Step::Read { path } => {
            let file = open(folder, &path, OpenFlags::empty(), DescriptorFlags::READ)?;
            let (bytes, _) = file.read(CHUNK as u64, 0).map_err(name)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        }
        Step::Write { path, bytes, append } => {
            let flags = if append { OpenFlags::CREATE } else { OpenFlags::CREATE | OpenFlags::TRUNCATE };
            write(&open(folder, &path, flags, DescriptorFlags::WRITE)?, bytes, append)
        }
        Step::WriteAt { path, offset, bytes } => {
            let file = open(folder, &path, OpenFlags::CREATE, DescriptorFlags::WRITE)?;
            file.write(&vec![b'x'; bytes], offset).map(|written| written.to_string()).map_err(name)
        }
        Step::Resize { path, size } => {
            done(open(folder, &path, OpenFlags::CREATE, DescriptorFlags::WRITE)?.set_size(size))
        }
        Step::Touch { prefix, count } => {
            for number in 0..count {
                open(folder, &format!("{prefix}{number}"), OpenFlags::CREATE, DescriptorFlags::WRITE)
                    .map_err(|error| format!("{number} {error}"))?;
            }
            Ok(count.to_string())
        }
        Step::Symlink { target, path } => done(folder.symlink_at(&target, &path)),
        Step::Link { from, path } => done(folder.link_at(PathFlags::empty(), &from, folder, &path)),
        Step::Rename { from, path, into } => match into {
            Some(into) => {
                let other = granted(&into).map_err(|error| error.to_string())?;
                done(folder.rename_at(&from, &other, &path))
            }
            None => done(folder.rename_at(&from, folder, &path)),
        },
        Step::Mkdir { path } => done(folder.create_directory_at(&path)),
        Step::Remove { path } => done(folder.unlink_file_at(&path)),
        Step::WriteRemoved { path, bytes } => {
            let file = open(folder, &path, OpenFlags::CREATE, DescriptorFlags::WRITE)?;
            folder.unlink_file_at(&path).map_err(name)?;
            let written = write(&file, bytes, false);
            held.push(file);
            written
        }
    }
}

fn open(folder: &Descriptor, path: &str, create: OpenFlags, mode: DescriptorFlags) -> Result<Descriptor, String> {
    folder.open_at(PathFlags::SYMLINK_FOLLOW, path, create, mode).map_err(name)
}

fn write(file: &Descriptor, bytes: usize, append: bool) -> Result<String, String> {
    let stream = if append { file.append_via_stream() } else { file.write_via_stream(0) }.map_err(name)?;
    let mut left = bytes;
    while left > 0 {
        let chunk = left.min(CHUNK);
        stream.blocking_write_and_flush(&vec![b'x'; chunk]).map_err(|error| match error {
            StreamError::Closed => format!("{} closed", bytes - left),
            StreamError::LastOperationFailed(error) => format!("{} {}", bytes - left, error.to_debug_string()),
        })?;
        left -= chunk;
    }
    Ok(bytes.to_string())
}

fn name(code: ErrorCode) -> String {
    code.name().to_owned()
}
