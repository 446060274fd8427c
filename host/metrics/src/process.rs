//! What the operating system says of the host's process, under the names that every dashboard knows.
//!
//! Must not fail: what cannot be read is left out.

use std::time::Duration;

use crate::Readings;
use crate::families::{
    PROCESS_CPU, PROCESS_MAX_FDS, PROCESS_OPEN_FDS, PROCESS_RESIDENT, PROCESS_START, PROCESS_VIRTUAL,
};

/// Reads `/proc/self`.
pub fn read(readings: &mut Readings) {
    let _ = read_stat(readings);
    if let Ok(descriptors) = std::fs::read_dir("/proc/self/fd") {
        // One is this listing's own.
        readings.read(&PROCESS_OPEN_FDS, [], descriptors.count().saturating_sub(1) as f64);
    }
    if let Some(most) = rustix::process::getrlimit(rustix::process::Resource::Nofile).current {
        readings.read(&PROCESS_MAX_FDS, [], most as f64);
    }
}

/// What the kernel counts the age of a process in, on every architecture that the host runs on.
const CLOCK_TICKS_HZ: f64 = 100.0;

/// CPU time of the process, user and system.
pub fn cpu() -> Duration {
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(cpu.tv_sec).unwrap_or_default(), u32::try_from(cpu.tv_nsec).unwrap_or_default())
}

fn read_stat(readings: &mut Readings) -> Option<()> {
    readings.read(&PROCESS_CPU, [], cpu().as_secs_f64());
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches(" kB").parse::<f64>().ok().map(|kibibytes| kibibytes * 1024.0)
    };
    readings.read(&PROCESS_VIRTUAL, [], bytes("VmSize:")?);
    readings.read(&PROCESS_RESIDENT, [], bytes("VmRSS:")?);
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the name of the program, which may hold anything; the time of the start is the 22nd.
    let age: f64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let kernel = std::fs::read_to_string("/proc/stat").ok()?;
    let booted: f64 = kernel.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    readings.read(&PROCESS_START, [], booted + age / CLOCK_TICKS_HZ);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_has_memory_descriptors_and_a_past() {
        let mut readings = Readings::default();
        read(&mut readings);
        let of = |name: &str| {
            let found = readings.numbers.iter().find(|(family, ..)| family.shown_name() == name);
            found.unwrap_or_else(|| panic!("{name}")).2
        };
        assert!(of("process_resident_memory_bytes") > 100_000.0);
        assert!(of("process_virtual_memory_bytes") >= of("process_resident_memory_bytes"));
        assert!(of("process_open_fds") >= 3.0 && of("process_max_fds") >= of("process_open_fds"));
        assert!(of("process_cpu_seconds_total") >= 0.0);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        let since = of("process_start_time_seconds");
        assert!((now - 3_600.0..=now + 2.0).contains(&since), "{since} at {now}");
    }
}
