//! What a program asks of the machine that it runs on: read off its ELF file, not guessed from the machine that built
//! it.

use anyhow::{Context as _, bail, ensure};
use object::LittleEndian;
use object::elf::{DT_NEEDED, EM_AARCH64, EM_X86_64, FileHeader64};
use object::read::elf::{Dyn as _, FileHeader as _};

/// A processor, by the names that each kind of package has for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Machine {
    /// As the kernel and Python name it.
    pub(crate) linux: &'static str,
    /// As Debian, Go and OCI name it.
    pub(crate) debian: &'static str,
    /// As Node.js names it.
    pub(crate) node: &'static str,
    /// As Rust names it, with the system.
    pub(crate) target: &'static str,
}

const X86_64: Machine = Machine { linux: "x86_64", debian: "amd64", node: "x64", target: "x86_64-unknown-linux-gnu" };
const AARCH64: Machine =
    Machine { linux: "aarch64", debian: "arm64", node: "arm64", target: "aarch64-unknown-linux-gnu" };

/// Libraries that every Linux with glibc has: what a wheel that says `manylinux` may need, and what Debian's packages
/// `libc6` and `libgcc-s1` bring.
const LIBRARIES: [&str; 10] = [
    "ld-linux-aarch64.so.1",
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "libresolv.so.2",
    "librt.so.1",
    "libutil.so.1",
];

/// What a program needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Requirements {
    pub(crate) machine: Machine,
    /// The oldest glibc that has every symbol, as 2 and 34.
    pub(crate) glibc: (u32, u32),
}

/// Reads what a program needs. Refuses one that needs a library which packages would have to bring.
pub(crate) fn requirements(program: &[u8]) -> anyhow::Result<Requirements> {
    let header = FileHeader64::<LittleEndian>::parse(program).context("it is no 64-bit ELF file")?;
    let endian = header.endian().context("it is no little-endian ELF file")?;
    let machine = match header.e_machine.get(endian) {
        EM_X86_64 => X86_64,
        EM_AARCH64 => AARCH64,
        other => bail!("it is for a processor that has no packages (ELF machine {other})"),
    };
    let sections = header.sections(endian, program)?;
    let (entries, link) = sections.dynamic(endian, program)?.context("it is not linked with shared libraries")?;
    let strings = sections.strings(endian, program, link)?;
    for entry in entries.iter().filter(|entry| entry.tag(endian) == DT_NEEDED) {
        let library = text(entry.string(endian, strings))?;
        ensure!(LIBRARIES.contains(&library.as_str()), "it needs {library}, which the packages do not bring");
    }
    let mut names = Vec::new();
    if let Some((mut needs, link)) = sections.gnu_verneed(endian, program)? {
        let strings = sections.strings(endian, program, link)?;
        while let Some((_, mut versions)) = needs.next()? {
            while let Some(version) = versions.next()? {
                names.push(text(version.name(endian, strings))?);
            }
        }
    }
    Ok(Requirements { machine, glibc: newest_glibc(&names).context("it needs no glibc")? })
}

fn text(bytes: object::read::Result<&[u8]>) -> anyhow::Result<String> {
    Ok(String::from_utf8(bytes?.to_vec())?)
}

/// The newest of the versions such as `GLIBC_2.34`. `GLIBC_2.2.5` counts as 2.2; others, such as `GCC_3.0`, do not
/// count.
fn newest_glibc(versions: &[String]) -> Option<(u32, u32)> {
    let numbers = versions.iter().filter_map(|version| {
        let mut parts = version.strip_prefix("GLIBC_")?.split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    });
    numbers.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_glibc_is_found_by_number_not_by_letters() {
        let versions = ["GLIBC_2.9", "GCC_3.0", "GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_PRIVATE"].map(str::to_owned);
        assert_eq!(newest_glibc(&versions), Some((2, 34)));
        assert_eq!(newest_glibc(&["GCC_3.0".to_owned()]), None);
    }

    #[test]
    fn needs_of_this_test_are_those_of_a_program_of_rust() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let requirements = requirements(&program).unwrap();
        assert_eq!(requirements.machine.linux, std::env::consts::ARCH);
        assert!(requirements.glibc >= (2, 17), "{requirements:?}: what Rust itself needs");
    }

    #[test]
    fn script_is_no_program() {
        assert_eq!(requirements(b"#!/bin/sh\n").unwrap_err().to_string(), "it is no 64-bit ELF file");
    }
}
