//! Words with holes: `{data}/text-{part}`.

use std::path::Path;

use super::Data;

/// A word of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Hole(Hole),
}

/// What is put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hole {
    Data,
    Part,
    Index,
    Out,
    Run,
    Cpus,
    Scale(u64),
}

/// Where a template is used, which decides what it may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usage {
    /// In a command of a task.
    Task,
    /// In a command that makes data.
    Data,
    /// In a check: of the run, not of a task.
    Check,
}

impl Usage {
    /// The placeholders, for a remedy.
    pub(super) fn names(self) -> &'static str {
        match self {
            Usage::Task => "{data}, {part}, {index}, {out}, {run}, {scale:N}, {cpus}",
            Usage::Data => "{data}, {part}, {out}, {scale:N}, {cpus}",
            Usage::Check => "{data}, {run}, {scale:N}, {cpus}",
        }
    }

    fn allows(self, hole: Hole) -> bool {
        match hole {
            Hole::Data | Hole::Cpus | Hole::Scale(_) => true,
            Hole::Part | Hole::Out => self != Usage::Check,
            Hole::Run => self != Usage::Data,
            Hole::Index => self == Usage::Task,
        }
    }
}

/// What the holes are filled with.
#[derive(Clone, Copy)]
pub(crate) struct Fill<'a> {
    /// `{data}`
    pub(crate) data: &'a Path,
    /// `{run}`
    pub(crate) run: &'a Path,
    /// `{out}`
    pub(crate) out: &'a Path,
    /// `{index}`, and `{part}` up to the number of parts
    pub(crate) index: u32,
    /// For the parts of data.
    pub(crate) sets: &'a [Data],
    /// `{scale:N}` is N times this.
    pub(crate) scale: f64,
    /// `{cpus}`
    pub(crate) cpus: u32,
}

impl Template {
    /// Takes a word apart; the error is the placeholder that is none in this place.
    pub(super) fn parse(word: &str, place: Usage) -> Result<Template, String> {
        let mut pieces = Vec::new();
        let mut text = String::new();
        let mut rest = word;
        while let Some(open) = rest.find('{') {
            let (before, from_brace) = rest.split_at(open);
            text.push_str(before);
            let after = from_brace.get(1..).unwrap_or("");
            if let Some(after) = after.strip_prefix('{') {
                text.push('{');
                rest = after;
                continue;
            }
            let close = after.find('}').ok_or_else(|| from_brace.to_owned())?;
            let (name, after) = after.split_at(close);
            let hole = Self::hole(name).filter(|&hole| place.allows(hole));
            let hole = hole.ok_or_else(|| format!("{{{name}}}"))?;
            if !text.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut text)));
            }
            pieces.push(Piece::Hole(hole));
            rest = after.get(1..).unwrap_or("");
        }
        text.push_str(rest);
        if !text.is_empty() || pieces.is_empty() {
            pieces.push(Piece::Text(text));
        }
        Ok(Template(pieces))
    }

    fn hole(name: &str) -> Option<Hole> {
        Some(match name {
            "data" => Hole::Data,
            "part" => Hole::Part,
            "index" => Hole::Index,
            "out" => Hole::Out,
            "run" => Hole::Run,
            "cpus" => Hole::Cpus,
            _ => Hole::Scale(name.strip_prefix("scale:")?.parse().ok()?),
        })
    }

    /// The word itself, if it has no holes.
    pub(super) fn fixed(&self) -> Option<&str> {
        match self.0.as_slice() {
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The data sets with parts that it names, as in `{data}/NAME-{part}`.
    pub(super) fn sets(&self) -> impl Iterator<Item = &str> {
        self.0.windows(3).filter_map(|pieces| match pieces {
            [Piece::Hole(Hole::Data), Piece::Text(text), Piece::Hole(Hole::Part)] => {
                let name = text.strip_prefix('/')?.strip_suffix('-')?;
                // a longer way does not lead to a part of a set
                Some(name).filter(|name| !name.contains([' ', '/']))
            }
            _ => None,
        })
    }

    /// Words of a command.
    pub(crate) fn fill_all(words: &[Template], fill: &Fill<'_>) -> Vec<String> {
        words.iter().map(|word| word.fill(fill)).collect()
    }

    /// The word for one task. `{part}` right behind the name of a data set and a dash counts
    /// round and round through its parts; elsewhere it is the index.
    pub(crate) fn fill(&self, fill: &Fill<'_>) -> String {
        let mut word = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => word.push_str(text),
                Piece::Hole(Hole::Data) => word.push_str(&fill.data.to_string_lossy()),
                Piece::Hole(Hole::Run) => word.push_str(&fill.run.to_string_lossy()),
                Piece::Hole(Hole::Out) => word.push_str(&fill.out.to_string_lossy()),
                Piece::Hole(Hole::Index) => word.push_str(&fill.index.to_string()),
                Piece::Hole(Hole::Cpus) => word.push_str(&fill.cpus.to_string()),
                Piece::Hole(Hole::Part) => {
                    let name = word.strip_suffix('-').and_then(|before| before.rsplit('/').next());
                    let set = name.and_then(|name| fill.sets.iter().find(|set| set.name == name));
                    let part = set.map_or(fill.index, |set| fill.index % set.parts.max(1));
                    word.push_str(&part.to_string());
                }
                Piece::Hole(Hole::Scale(amount)) => {
                    // `as` saturates
                    let scaled = (*amount as f64 * fill.scale).round() as u64;
                    word.push_str(&scaled.max(1).to_string());
                }
            }
        }
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::Made;

    fn filled(word: &str, index: u32) -> String {
        let made = Made::Derived(Vec::new());
        let sets = [Data { name: "text".to_owned(), parts: 4, made }];
        let fill = Fill {
            data: Path::new("/d"),
            run: Path::new("/r"),
            out: Path::new("/r/map-1"),
            index,
            sets: &sets,
            scale: 0.1,
            cpus: 2,
        };
        Template::parse(word, Usage::Task).unwrap().fill(&fill)
    }

    #[test]
    fn holes_are_filled() {
        assert_eq!(filled("{data}/text-{part} > {out}", 5), "/d/text-1 > /r/map-1");
        assert_eq!(filled("{run}/map-{part}-{index}", 5), "/r/map-5-5");
        assert_eq!(filled("{scale:25}{scale:1}{cpus}", 0), "312");
        assert_eq!(filled("awk '{{print}' }", 0), "awk '{print}' }");
        assert_eq!(filled("", 0), "");
    }

    #[test]
    fn data_sets_are_found_where_their_parts_are_named() {
        let sets = |word| {
            let template = Template::parse(word, Usage::Task).unwrap();
            template.sets().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(sets("cmp {data}/a-{part} {data}/b-{part} {run}/c-{part}"), ["a", "b"]);
        assert_eq!(sets("cat {data}/a-0 {data}/x y-{part} {data}/sub/z-{part}"), [""; 0]);
    }

    #[test]
    fn unknown_holes_are_named() {
        let refused = |word, place| Template::parse(word, place).unwrap_err();
        assert_eq!(refused("x {file}", Usage::Task), "{file}");
        assert_eq!(refused("{print}", Usage::Task), "{print}");
        assert_eq!(refused("{scale:x}", Usage::Task), "{scale:x}");
        assert_eq!(refused("{open", Usage::Task), "{open");
        assert_eq!(refused("{out}", Usage::Check), "{out}");
        assert_eq!(refused("{run}", Usage::Data), "{run}");
    }
}
