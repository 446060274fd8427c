//! Colour models and the ways between them.

use crate::bindings::prism::colour::types::{Colour, ColourError, Hsl, Rgb};

/// The sixteen basic colours of CSS.
const NAMES: [(&str, u32); 16] = [
    ("black", 0x00_0000),
    ("silver", 0xC0_C0C0),
    ("gray", 0x80_8080),
    ("white", 0xFF_FFFF),
    ("maroon", 0x80_0000),
    ("red", 0xFF_0000),
    ("purple", 0x80_0080),
    ("fuchsia", 0xFF_00FF),
    ("green", 0x00_8000),
    ("lime", 0x00_FF00),
    ("olive", 0x80_8000),
    ("yellow", 0xFF_FF00),
    ("navy", 0x00_0080),
    ("blue", 0x00_00FF),
    ("teal", 0x00_8080),
    ("aqua", 0x00_FFFF),
];

/// Whatever a colour is written in, as red, green and blue.
pub(crate) fn rgb(colour: &Colour) -> Result<Rgb, ColourError> {
    match colour {
        Colour::Rgb(rgb) => Ok(*rgb),
        Colour::Hsl(hsl) => checked(*hsl).map(rgb_of),
        Colour::Css(text) => css(text.trim()).ok_or_else(|| ColourError::Unknown(text.clone())),
        Colour::Transparent => Err(ColourError::Invisible),
    }
}

/// The same, if its numbers are within the model.
pub(crate) fn checked(hsl: Hsl) -> Result<Hsl, ColourError> {
    let unit = 0.0..=1.0;
    if !hsl.hue.is_finite() {
        return Err(ColourError::OutOfRange(format!("hue {}", hsl.hue)));
    }
    for (name, value) in [("saturation", hsl.saturation), ("lightness", hsl.lightness)] {
        if !unit.contains(&value) {
            return Err(ColourError::OutOfRange(format!("{name} {value}")));
        }
    }
    Ok(Hsl { hue: hsl.hue.rem_euclid(360.0), ..hsl })
}

fn css(text: &str) -> Option<Rgb> {
    if let Some(digits) = text.strip_prefix('#') {
        let number = u32::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'))?;
        return match digits.len() {
            3 => Some(of(((number & 0xF00) << 8 | (number & 0xF0) << 4 | number & 0xF) * 0x11)),
            6 => Some(of(number)),
            _ => None,
        };
    }
    NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, number)| of(*number))
}

fn of(number: u32) -> Rgb {
    let [_, red, green, blue] = number.to_be_bytes();
    Rgb { red, green, blue }
}

pub(crate) fn hex(rgb: Rgb) -> String {
    format!("#{:02x}{:02x}{:02x}", rgb.red, rgb.green, rgb.blue)
}

pub(crate) fn hsl_of(rgb: Rgb) -> Hsl {
    let [red, green, blue] = [rgb.red, rgb.green, rgb.blue].map(|part| f64::from(part) / 255.0);
    let most = red.max(green).max(blue);
    let least = red.min(green).min(blue);
    let lightness = (most + least) / 2.0;
    let range = most - least;
    if range == 0.0 {
        return Hsl { hue: 0.0, saturation: 0.0, lightness };
    }
    let sixth = if most == red {
        ((green - blue) / range).rem_euclid(6.0)
    } else if most == green {
        (blue - red) / range + 2.0
    } else {
        (red - green) / range + 4.0
    };
    Hsl { hue: sixth * 60.0, saturation: range / (1.0 - (2.0 * lightness - 1.0).abs()), lightness }
}

pub(crate) fn rgb_of(hsl: Hsl) -> Rgb {
    let part = |offset: f64| {
        let turn = (offset + hsl.hue / 30.0) % 12.0;
        let range = hsl.saturation * hsl.lightness.min(1.0 - hsl.lightness);
        let part = hsl.lightness - range * (turn - 3.0).min(9.0 - turn).clamp(-1.0, 1.0);
        (part * 255.0).round() as u8
    };
    Rgb { red: part(0.0), green: part(8.0), blue: part(4.0) }
}

/// WCAG 2.2: from 1 to 21, whichever of the two is lighter.
pub(crate) fn contrast(a: Rgb, b: Rgb) -> f64 {
    let a = luminance(a);
    let b = luminance(b);
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

fn luminance(rgb: Rgb) -> f64 {
    let linear = |part: u8| {
        let part = f64::from(part) / 255.0;
        if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * linear(rgb.red) + 0.7152 * linear(rgb.green) + 0.0722 * linear(rgb.blue)
}

/// So much of the way from one to the other.
pub(crate) fn mixed(from: Rgb, to: Rgb, way: f64) -> Rgb {
    let part = |from: u8, to: u8| (f64::from(from) + (f64::from(to) - f64::from(from)) * way).round() as u8;
    Rgb { red: part(from.red, to.red), green: part(from.green, to.green), blue: part(from.blue, to.blue) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Rgb {
        css(text).unwrap()
    }

    #[test]
    fn css_hex_digits_and_names_are_parsed() {
        assert_eq!(hex(read("#1af")), "#11aaff");
        assert_eq!(hex(read("#C0ffee")), "#c0ffee");
        assert_eq!(hex(read("Navy")), "#000080");
        for text in ["", "#", "#12", "#12345g", "#+12", "rebecca"] {
            assert!(css(text).is_none(), "{text}");
        }
    }

    #[test]
    fn hsl_round_trips_through_rgb() {
        for text in ["#000000", "#ffffff", "#808080", "#ff0000", "#00ff00", "#0000ff", "#c0ffee", "#123456"] {
            assert_eq!(hex(rgb_of(hsl_of(read(text)))), text);
        }
        assert!(checked(Hsl { hue: 0.0, saturation: 1.5, lightness: 0.5 }).is_err());
        assert_eq!(checked(Hsl { hue: -90.0, saturation: 1.0, lightness: 0.5 }).unwrap().hue, 270.0);
    }

    #[test]
    fn black_on_white_has_the_most_contrast() {
        assert_eq!(contrast(read("black"), read("white")), 21.0);
        assert_eq!(contrast(read("teal"), read("teal")), 1.0);
    }
}
