//! Calls made at random, the same in every run of a seed: plain ones, odd ones and wrong ones.

use serde_json::{Value, json};

use super::world::Call;

/// A small generator (xorshift64*); what it makes never changes with a crate.
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33).unwrap() % n
    }

    pub(super) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(super) fn of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len())]
    }

    /// A JSON string, written as somebody may write it.
    fn string(&mut self) -> String {
        let pieces = [
            "a",
            "B",
            "hello world",
            " ",
            "1",
            "e5",
            "-",
            ":",
            ",",
            "{",
            "]",
            "'",
            "%",
            r"\n",
            r"\t",
            r#"\""#,
            r"\\",
            r"\/",
            r"\r",
            "x y",
            "\u{7f}",
        ];
        let odd = [
            "\u{e9}",
            "e\u{301}",
            r"\u00e9",
            r"\u0041",
            r"\ud83d\ude00",
            "\u{1f600}",
            r"\\u0000",
            r"\u0000",
            r"\ud83d",
        ];
        let mut text = String::from("\"");
        for _ in 0..self.below(5) {
            text.push_str(if self.one_in(40) { self.of(&odd) } else { self.of(&pieces) });
        }
        text + "\""
    }

    fn name(&mut self) -> String {
        if self.one_in(12) {
            return self.string();
        }
        format!(
            "\"{}\"",
            self.of(&["a", "b", "aa", "B", "to", "text", "Z9", "-", "amount", "currency", "when", "tags", "note"])
        )
    }

    fn number(&mut self) -> &'static str {
        if self.one_in(15) {
            return self.of(&["1e5", "1E-3", "0e0", "1e131071", "1e9999999", "-1.5e+2"]);
        }
        self.of(&[
            "0",
            "-0",
            "1",
            "-1",
            "10",
            "1.0",
            "1.50",
            "0.010",
            "123456789012345678901234567890",
            "100",
            "-40000",
            "0.0",
            "9007199254740993",
        ])
    }

    /// A JSON value with blanks where they mean nothing.
    pub(super) fn value(&mut self, depth: usize) -> String {
        match self.below(if depth == 0 { 5 } else { 8 }) {
            0 | 1 => self.string(),
            2 | 3 => self.number().to_owned(),
            4 => self.of(&["true", "false", "null"]).to_owned(),
            5 => {
                let items: Vec<String> = (0..self.below(4)).map(|_| self.value(depth - 1)).collect();
                format!("[{}]", items.join(self.of(&[",", " , ", ",\n"])))
            }
            _ => self.object(depth - 1),
        }
    }

    /// A JSON object; now and then with a member twice.
    pub(super) fn object(&mut self, depth: usize) -> String {
        let mut names: Vec<String> = Vec::new();
        let mut members = Vec::new();
        for _ in 0..self.below(5) {
            let name = self.name();
            if names.contains(&name) && !self.one_in(10) {
                continue;
            }
            members.push(format!("{name}{}{}", self.of(&[":", " : "]), self.value(depth)));
            names.push(name);
        }
        format!("{{{}{}}}", self.of(&["", " ", "\n\t"]), members.join(self.of(&[",", ", "])))
    }

    fn email(&mut self) -> String {
        let to = self.of(&[
            r#""ap@acme.test""#,
            r#""a.b+c@x-y.acme.test""#,
            r#""Ap@Acme.test""#,
            r#"" ap@acme.test""#,
            r#""a@b""#,
            r#""no""#,
            r#""a..b@c.test""#,
            r#""a@b..c""#,
            r#"["a@b.test"]"#,
            r#""a@b.test,c@d.test""#,
            r#""-a@b.test""#,
            r#""j\u00f6@b.test""#,
        ]);
        let subject = self.of(&[r#""Invoice""#, r#""""#, r#""  ""#, r#""a\nb""#, "5", r#"" x ""#]);
        let text =
            if self.one_in(8) { self.value(1) } else { self.of(&[r#""Hello\nyou""#, r#""t""#, r#"" ""#]).to_owned() };
        let more = if self.one_in(6) {
            self.of(&[
                r#","html":"<p>""#,
                r#","html":"""#,
                r#","cc":"x@y.test""#,
                r#","reply_to":"r@y.test""#,
                r#","to":"z@y.test""#,
                r#","x":1"#,
            ])
        } else {
            ""
        };
        format!(r#"{{"to":{to},"subject":{subject},"text":{text}{more}}}"#)
    }

    fn message(&mut self) -> String {
        let to = self.of(&[r#""+491701234567""#, r#""+0123""#, r#"" +491701234567 ""#, "5", r#""+1234567""#]);
        let text = if self.one_in(3) { self.string() } else { r#""Code 1""#.to_owned() };
        format!(r#"{{"to":{to},"text":{text}{}}}"#, if self.one_in(8) { r#","x":"y""# } else { "" })
    }

    pub(super) fn payload(&mut self, destination: &str) -> String {
        match destination {
            "mail" => self.email(),
            "text" => self.message(),
            _ if self.one_in(30) => self.value(2),
            _ => self.object(3),
        }
    }

    fn options(&mut self) -> Value {
        let mut options = json!({});
        if !self.one_in(15) {
            options["tenant"] = json!("acme");
        }
        while self.one_in(2) {
            let (name, value) = match self.below(15) {
                0 => ("principal", json!(self.of(&["ann", "", "a\tb", "J\u{f6}"]))),
                1 => ("surface", json!(self.of(&["http", "mcp", "fax"]))),
                2 | 3 => ("slot", json!(self.of(&["", "s1", "a b", "a\nb", "\u{e9}"]))),
                4 => ("caller_key", json!(self.of(&["k", "", "a b", "order-1"]))),
                5 | 6 => ("due_at", json!(self.of(&TIMES))),
                7 | 8 => ("deadline", json!(self.of(&TIMES))),
                9 => ("traceparent", json!(self.of(&["00-0123456789abcdef0123456789abcdef-0123456789abcdef-01", "x"]))),
                10 => ("occurrence", [json!(1), json!(2), json!(0), json!(1.5), json!("1")][self.below(5)].clone()),
                11 => ("instructed_by", [json!({"p": "ann"}), json!({"p": 1}), json!("ann")][self.below(3)].clone()),
                12 => ("tenant", json!(self.of(&["acme", "globex", "a b", "nobody"]))),
                13 => (self.of(&["slot", "due_at", "principal"]), Value::Null),
                _ => (self.of(&["slots", "priority"]), json!("x")),
            };
            options[name] = value;
        }
        options
    }

    /// A call that may be anything.
    pub(super) fn call(&mut self) -> Call {
        let rarely = |chance: &mut Self, good: &'static str, bad: &[&'static str]| {
            if chance.one_in(12) { chance.of(bad) } else { good }.to_owned()
        };
        let name = self.of(&[
            "hook", "hook", "hook", "mail", "mail", "text", "ruled", "narrow", "asked", "gone", "nowhere", "others",
        ]);
        let payload = self.payload(name);
        let (mut run_id, mut step) = (Some(rarely(self, "run-1", &["key:x", "", "a b", "\u{e9}"])), Some(1));
        if self.one_in(8) {
            run_id = None;
        }
        if self.one_in(8) || run_id.is_none() && !self.one_in(4) {
            step = None;
        }
        if self.one_in(20) {
            step = Some(-1);
        }
        let reference = rarely(self, "INV-1", &["a:b", "", "INV 1", "\u{e9}", "ord.7_x"]);
        Call { destination: name.to_owned(), reference, payload, run_id, step, options: self.options() }
    }
}

const TIMES: [&str; 10] = [
    "2030-01-02T03:04:05Z",
    "2030-01-02T03:04:05.123456789Z",
    "2030-01-02T03:04:05.1234565Z",
    "2030-01-02T03:04:05+02:00",
    "2030-02-30T00:00:00Z",
    "2030-01-31T00:00:00Z",
    "2030-01-02 03:04:05",
    "2020-01-01T00:00:00Z",
    "2030-01-02T24:00:00Z",
    "tomorrow",
];
