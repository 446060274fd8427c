//! Imports an interface that no host has.

#[path = "raw/mod.rs"]
mod raw;

wit_bindgen::generate!({
    inline: "
        package nobody:has@1.0.0;

        interface this {
            answer: func() -> u32;
        }

        world wants {
            import this;
        }
    ",
});

raw::plugin!(vec![raw::tool(&format!("answer_{}", nobody::has::this::answer()), raw::ANYTHING)]);
