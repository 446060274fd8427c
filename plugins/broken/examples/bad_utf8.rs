//! Offers a tool whose description is not UTF-8.

#[path = "raw/mod.rs"]
mod raw;

raw::plugin!({
    let mut tool = raw::tool("garbled", raw::ANYTHING);
    #[expect(unsafe_code, reason = "the attack: the host must look at strings that cross the border")]
    // SAFETY: none; the bytes are not UTF-8 on purpose, and nothing in this crate reads them as text.
    let description = unsafe { String::from_utf8_unchecked(vec![b'a', 0xFF, 0xFE, b'z']) };
    tool.description = description;
    vec![tool]
});
