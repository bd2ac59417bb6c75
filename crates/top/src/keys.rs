//! Which key does what: for the footer and the help, which cannot differ from each other that way.

/// The function keys in the footer, as htop has them where it has the same.
pub const FUNCTIONS: [&str; 10] =
    ["Help", "View", "Find", "Tier", "Pause", "Sort", "Prio-", "Prio+", "Kill", "Quit"];

/// What the help shows; an empty row of keys is a heading.
pub const HELP: &[(&str, &str)] = &[
    ("", "Look around"),
    ("arrows PgUp PgDn", "select a task; Home, End: the first, the last"),
    ("Enter", "the task with all that was decided about it; Esc goes back"),
    ("F2 Tab 1 2 3", "tasks, queue, graphs"),
    ("F3 /", "filter: words, job:NAME, user:NAME, tier:active; Esc: all"),
    ("u j", "only tasks of the selected one's user, job"),
    ("F4 t", "both tiers, active, passive"),
    ("F6 s", "sort; I turns it round; P CPU, M memory, T age, N id"),
    ("", "Time"),
    ("F5 Space", "stop at this moment, and go on"),
    ("Left Right", "one moment back, forward; [ ] one minute"),
    ("", "Act on the selected one, after a question"),
    ("F7 F8 - +", "priority"),
    ("F9 k", "signal to all its processes"),
    ("r", "release: the task goes on outside LRS"),
    ("c", "cancel a wait or a reservation (queue)"),
    ("", "Else"),
    ("mouse", "select, sort by a heading, wheel; Shift selects text"),
    ("Ctrl-L", "draw anew"),
    ("Ctrl-Z", "to the shell; fg comes back"),
    ("F10 q Ctrl-C", "end"),
];
