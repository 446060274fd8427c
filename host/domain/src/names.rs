//! What names may look like.
//!
//! Owns the rules for names that operators and issuers choose. Invariant: a name that passes fits in a log line, a path
//! and a command line without quoting.

/// Checks the name of a tenant, a plugin, a requestor or a token.
pub fn check_name(name: &str) -> Result<(), &'static str> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let is_whole = (1..=64).contains(&name.len()) && name.bytes().all(allowed);
    // In an address they are steps to another page, also when they are escaped.
    if !is_whole || matches!(name, "." | "..") {
        return Err("a name has 1 to 64 characters of A-Z a-z 0-9 _ - . and is neither . nor ..");
    }
    Ok(())
}

/// Characters of a tool's name, prefix included, as the protocol says.
pub const TOOL_NAME_CHARS_MAX: usize = 128;

/// Checks what clients are to call a tool.
pub fn check_tool_name(name: &str) -> Result<(), String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if name.is_empty() || name.len() > TOOL_NAME_CHARS_MAX || !name.bytes().all(allowed) {
        return Err(format!("the name of a tool has 1 to {TOOL_NAME_CHARS_MAX} characters of A-Z a-z 0-9 _ - ."));
    }
    Ok(())
}

/// Checks the name of an OAuth scope, and returns it: what fits between the quotes and spaces of a challenge (RFC 6749,
/// 3.3).
pub fn check_scope(text: &str) -> Result<String, String> {
    let token = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
    if text.is_empty() || text.len() > 128 || !text.bytes().all(token) {
        return Err(format!("{text:?} is no scope: 1 to 128 visible characters without space, quote and backslash"));
    }
    // Clients ask for it when they like; a resource never does (OpenID Connect Core, 11).
    if text == "offline_access" {
        return Err("offline_access is between clients and their issuer; it is good for nothing here".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_a_part_of_a_path_and_no_step_in_it() {
        for good in ["acme", "a", "...", ".a", "..a", "a.b-c_D9", &"a".repeat(64)] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "a b", "ü", "%2E", &"a".repeat(65)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
