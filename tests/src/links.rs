//! The links of a Markdown file and the anchors of its headings, as GitHub makes them.

/// Targets of inline links and images outside of code.
pub fn targets(markdown: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in outside_fences(markdown) {
        let line = without_code(line);
        let mut rest = line.as_str();
        while let Some(at) = rest.find("](") {
            rest = &rest[at + 2..];
            if let Some(end) = rest.find(')') {
                let target = rest[..end].split(' ').next().unwrap_or_default();
                found.push(target.to_owned());
                rest = &rest[end..];
            }
        }
    }
    found
}

/// The anchors of all headings.
pub fn anchors(markdown: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in outside_fences(markdown) {
        let level = line.bytes().take_while(|byte| *byte == b'#').count();
        if !(1..=6).contains(&level) || !line[level..].starts_with(' ') {
            continue;
        }
        let anchor: String = line[level..]
            .trim()
            .to_lowercase()
            .chars()
            .filter(|char| char.is_alphanumeric() || matches!(char, ' ' | '-' | '_'))
            .map(|char| if char == ' ' { '-' } else { char })
            .collect();
        let repeated = found.iter().filter(|known| **known == anchor).count();
        found.push(if repeated == 0 { anchor } else { format!("{anchor}-{repeated}") });
    }
    found
}

fn outside_fences(markdown: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    markdown.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fence && !fenced
    })
}

fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_anchors_are_found() {
        let text = "# A title: `code` & more\n[x](a.md#b) `[y](no.md)`\n```\n# none\n[z](no.md)\n```\n## Same\n## Same\n";
        assert_eq!(targets(text), ["a.md#b"]);
        assert_eq!(anchors(text), ["a-title-code--more", "same", "same-1"]);
    }
}
