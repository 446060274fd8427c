//! URI templates (RFC 6570): which URIs one can stand for.
//!
//! Owns the question "could this URI come from this template?", for routing. It does not expand templates, and answers
//! yes where the template alone cannot tell.

/// Expressions in one template.
const EXPRESSIONS_MAX: usize = 32;

/// A template that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UriTemplate {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    Expression { operator: Option<char>, names: Vec<String> },
}

impl UriTemplate {
    /// Reads a template. It begins with a scheme, so that no plugin answers for every URI there is.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((literal, after)) = rest.split_once('{') {
            push_literal(&mut parts, literal)?;
            let (expression, after) = after.split_once('}').ok_or("an expression has no end")?;
            parts.push(self::expression(expression)?);
            rest = after;
        }
        push_literal(&mut parts, rest)?;
        let expressions = parts.iter().filter(|part| matches!(part, Part::Expression { .. })).count();
        match parts.first() {
            Some(Part::Literal(first)) if has_scheme(first) => {}
            _ => return Err("it does not begin with a scheme, such as `file:`".to_owned()),
        }
        if expressions > EXPRESSIONS_MAX {
            return Err(format!("it has {expressions} expressions; {EXPRESSIONS_MAX} is the most"));
        }
        Ok(Self { parts })
    }

    /// The names of its variables, in order.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        let names = self.parts.iter().filter_map(|part| match part {
            Part::Expression { names, .. } => Some(names),
            Part::Literal(_) => None,
        });
        names.flatten().map(String::as_str)
    }

    /// Whether this URI could have been made from the template. Takes time in proportion to the URI's length, whatever
    /// the template.
    pub fn fits(&self, uri: &str) -> bool {
        let text = uri.as_bytes();
        // Where the parts so far can end.
        let mut ends = vec![false; text.len() + 1];
        if let Some(start) = ends.first_mut() {
            *start = true;
        }
        for part in &self.parts {
            ends = match part {
                Part::Literal(literal) => after_literal(text, literal.as_bytes(), &ends),
                Part::Expression { operator, names } => after_expression(text, *operator, names.len(), &ends),
            };
        }
        ends.last().copied().unwrap_or(false)
    }
}

fn push_literal(parts: &mut Vec<Part>, literal: &str) -> Result<(), String> {
    if literal.contains(|character: char| character.is_control() || matches!(character, ' ' | '}' | '"' | '<' | '>')) {
        return Err("it holds characters that no URI has".to_owned());
    }
    if !literal.is_empty() {
        parts.push(Part::Literal(literal.to_owned()));
    }
    Ok(())
}

fn expression(text: &str) -> Result<Part, String> {
    let operator = text.chars().next().filter(|first| "+#./;?&".contains(*first));
    let list = text.strip_prefix(|first| Some(first) == operator).unwrap_or(text);
    let names: Result<Vec<String>, String> = list
        .split(',')
        .map(|variable| {
            let name = variable.trim_end_matches('*');
            let name = name.split_once(':').map_or(name, |(name, _length)| name);
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_.%-".contains(&byte);
            if !name.is_empty() && name.bytes().all(is_name) {
                Ok(name.to_owned())
            } else {
                Err(format!("{{{text}}} is not an expression"))
            }
        })
        .collect();
    Ok(Part::Expression { operator, names: names? })
}

fn has_scheme(literal: &str) -> bool {
    literal.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    })
}

fn after_literal(text: &[u8], literal: &[u8], starts: &[bool]) -> Vec<bool> {
    let mut ends = vec![false; starts.len()];
    for (at, _) in starts.iter().enumerate().filter(|(_, start)| **start) {
        if text.get(at..).is_some_and(|rest| rest.starts_with(literal))
            && let Some(end) = ends.get_mut(at + literal.len())
        {
            *end = true;
        }
    }
    ends
}

/// An expression stands for one or more characters of its kind; one with a leading sign may be left out whole.
fn after_expression(text: &[u8], operator: Option<char>, names: usize, starts: &[bool]) -> Vec<bool> {
    let several = names > 1;
    let belongs = |byte: u8| match operator {
        Some('+' | '#') => true,
        Some('?' | '&') => byte != b'#',
        Some('/') => !matches!(byte, b'?' | b'#'),
        Some('.' | ';') => !matches!(byte, b'/' | b'?' | b'#'),
        // Values are joined with commas, which a value itself would show percent-encoded.
        _ => !matches!(byte, b'/' | b'?' | b'#') && (several || byte != b','),
    };
    let sign = operator.filter(|operator| *operator != '+').map(|sign| sign as u32 as u8);
    let mut ends = if sign.is_some() { starts.to_vec() } else { vec![false; starts.len()] };
    let mut inside = false;
    for (at, byte) in text.iter().enumerate() {
        let starts_here = starts.get(at).copied().unwrap_or(false) && sign.is_none_or(|sign| *byte == sign);
        let is_inside = inside && belongs(*byte);
        inside = is_inside || (starts_here && (sign.is_some() || belongs(*byte)));
        if inside && let Some(end) = ends.get_mut(at + 1) {
            *end = true;
        }
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(template: &str, uri: &str) -> bool {
        UriTemplate::parse(template).unwrap().fits(uri)
    }

    #[test]
    fn uri_template_expression_matches_one_segment() {
        assert!(fits("test://template/{id}/data", "test://template/123/data"));
        assert!(!fits("test://template/{id}/data", "test://template//data"));
        assert!(!fits("test://template/{id}/data", "test://template/1/2/data"));
        assert!(!fits("test://template/{id}/data", "test://template/123/data?x"));
        assert!(!fits("test://template/{id}", "other://template/1"));
        assert!(fits("t://{a}.{b}", "t://x.y.z"));
    }

    #[test]
    fn uri_template_operators_widen_matches() {
        assert!(fits("file:///{+path}", "file:///a/b?c#d"));
        assert!(fits("http://a{/x,y}", "http://a/1/2"));
        assert!(fits("http://a{/x}", "http://a"));
        assert!(fits("http://a{?q,r}", "http://a?q=1&r=2"));
        assert!(!fits("http://a{?q}", "http://ab"));
        assert!(fits("http://a{#f}", "http://a#x"));
    }

    #[test]
    fn hostile_uri_template_is_matched_quickly() {
        let template = format!("x:{}", "{a}".repeat(32));
        assert!(!fits(&template, &format!("x:{}/", "a".repeat(2000))));
    }

    #[test]
    fn invalid_uri_templates_are_refused() {
        for template in
            ["{x}", "no scheme/{x}", "x:{", "x:{}", "x:{a b}", "x:}", "x: {a}", &format!("x:{}", "{a}".repeat(33))]
        {
            assert!(UriTemplate::parse(template).is_err(), "{template}");
        }
        assert_eq!(UriTemplate::parse("x:{a,b*}{?c:3}").unwrap().variables().collect::<Vec<_>>(), ["a", "b", "c"]);
    }
}
