//! A colour library as a component. It knows WIT and nothing else: no tool, no host, no task.

mod model;
mod png;

#[expect(unsafe_code, reason = "generated: it passes values in and out of the component's memory")]
mod bindings {
    wit_bindgen::generate!({ path: "wit", world: "library" });
    export!(Library);

    use super::Library;
}

use bindings::Guest;
use bindings::exports::prism::colour::contrast::{self, Levels, Verdict};
use bindings::exports::prism::colour::convert;
use bindings::exports::prism::colour::palette::{self, Harmony, LoadError};
use bindings::prism::colour::types::{Colour, ColourError, Hsl, Rgb};

/// Steps of a gradient unless said otherwise.
const STEPS: u8 = 5;

struct Library;

impl Guest for Library {
    fn colour_count() -> u64 {
        u64::MAX
    }
}

impl convert::Guest for Library {
    fn to_rgb(colour: Colour) -> Result<Rgb, ColourError> {
        model::rgb(&colour)
    }

    fn to_hsl(colour: Colour) -> Result<Hsl, ColourError> {
        match colour {
            Colour::Hsl(hsl) => model::checked(hsl),
            other => model::rgb(&other).map(model::hsl_of),
        }
    }

    fn to_hex(colour: Colour) -> Result<String, ColourError> {
        model::rgb(&colour).map(model::hex)
    }
}

impl contrast::Guest for Library {
    fn check(text: Colour, background: Colour) -> Result<Verdict, ColourError> {
        let ratio = model::contrast(model::rgb(&text)?, model::rgb(&background)?);
        Ok(Verdict { ratio, meets: met(ratio) })
    }

    fn pick(choices: Vec<Colour>, background: Colour, needed: Levels) -> Result<Option<(u32, String)>, ColourError> {
        let background = model::rgb(&background)?;
        for (at, choice) in (0..).zip(&choices) {
            let choice = model::rgb(choice)?;
            if met(model::contrast(choice, background)).contains(needed) {
                return Ok(Some((at, model::hex(choice))));
            }
        }
        Ok(None)
    }
}

/// What a ratio is enough for.
fn met(ratio: f64) -> Levels {
    let levels = [(3.0, Levels::AA_LARGE), (4.5, Levels::AA | Levels::AAA_LARGE), (7.0, Levels::AAA)];
    levels.into_iter().filter(|(least, _)| ratio >= *least).fold(Levels::empty(), |met, (_, level)| met | level)
}

impl palette::Guest for Library {
    fn load(path: String) -> Result<Vec<Rgb>, LoadError> {
        let text = std::fs::read_to_string(path).map_err(|error| LoadError::Unreadable(error.to_string()))?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let colour = |line: &str| model::rgb(&Colour::Css(line.to_owned()));
        lines.map(|line| colour(line).map_err(|_| LoadError::NoColour(line.to_owned()))).collect()
    }

    fn harmonise(base: Colour, harmony: Harmony) -> Result<Vec<Rgb>, ColourError> {
        let turns: &[f64] = match harmony {
            Harmony::Complementary => &[0.0, 180.0],
            Harmony::Analogous => &[0.0, 30.0, 330.0],
            Harmony::Triadic => &[0.0, 120.0, 240.0],
            Harmony::Tetradic => &[0.0, 90.0, 180.0, 270.0],
        };
        let hsl = model::hsl_of(model::rgb(&base)?);
        Ok(turns.iter().map(|turn| model::rgb_of(Hsl { hue: (hsl.hue + turn) % 360.0, ..hsl })).collect())
    }

    fn gradient(start: Colour, end: Colour, steps: Option<u8>) -> Result<Vec<String>, ColourError> {
        let start = model::rgb(&start)?;
        let end = model::rgb(&end)?;
        let last = steps.unwrap_or(STEPS).max(2) - 1;
        Ok((0..=last).map(|step| model::hex(model::mixed(start, end, f64::from(step) / f64::from(last)))).collect())
    }

    fn swatch(colours: Vec<Colour>, size: u8) -> Result<Vec<u8>, ColourError> {
        let colours = colours.iter().map(model::rgb).collect::<Result<Vec<_>, _>>()?;
        if colours.is_empty() || size == 0 {
            return Err(ColourError::Invisible);
        }
        Ok(png::squares(&colours, usize::from(size)))
    }

    fn parse_all(lines: Vec<String>) -> Vec<Result<Rgb, ColourError>> {
        lines.into_iter().map(|line| model::rgb(&Colour::Css(line))).collect()
    }
}
