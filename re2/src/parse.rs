//! The grammar of RE2. The [tree](Node) that results is as RE2's own parser makes it, so that its program has the same size.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "each function concerns a few of the many kinds of nodes"
)]

use super::class::{self, Class};
use super::factor::factor;
use super::node::{Anchor, Flags, Node, Times};
use super::outcome::{Encoding, Features, RegexError};

/// Reads an expression.
pub(super) fn parse(pattern: &str, encoding: Encoding) -> Result<(Node, Features), RegexError> {
    let mut runes = Vec::new();
    for (column, character) in (1..).zip(pattern.chars()) {
        match encoding {
            Encoding::Utf8 => runes.push((u32::from(character), column)),
            Encoding::Latin1 => {
                let mut buffer = [0; 4];
                let bytes = character.encode_utf8(&mut buffer).bytes();
                runes.extend(bytes.map(|byte| (u32::from(byte), column)));
            }
        }
    }
    let parser = Parser {
        runes,
        at: 0,
        encoding,
        flags: Flags::default(),
        stack: Vec::new(),
        open: Vec::new(),
        names: Vec::new(),
        features: Features::default(),
    };
    parser.expression()
}

struct Parser {
    /// The characters with their columns.
    runes: Vec<(u32, usize)>,
    at: usize,
    encoding: Encoding,
    flags: Flags,
    stack: Vec<Item>,
    /// The places of the open parentheses.
    open: Vec<usize>,
    names: Vec<Vec<u32>>,
    features: Features,
}

enum Item {
    Node(Node),
    /// The flags are those before it.
    Open {
        is_capture: bool,
        flags: Flags,
    },
    Bar,
}

impl Parser {
    fn expression(mut self) -> Result<(Node, Features), RegexError> {
        // The place of the repetition that has just been read.
        let mut repetition = None;
        while let Some(rune) = self.peek(0) {
            let start = self.at;
            let last = repetition.take();
            match char::from_u32(rune).unwrap_or_default() {
                '(' if self.peek(1) == Some(u32::from('?')) => self.group_with_flags()?,
                '(' => {
                    self.at += 1;
                    self.open(true, start)?;
                }
                '|' => {
                    self.at += 1;
                    self.bar();
                }
                ')' => self.close()?,
                '^' => {
                    let is_line = self.flags.is_multi_line;
                    self.anchor(1, if is_line { Anchor::BeginLine } else { Anchor::BeginText });
                }
                '$' => {
                    let is_line = self.flags.is_multi_line;
                    self.anchor(1, if is_line { Anchor::EndLine } else { Anchor::Dollar });
                }
                '.' => {
                    self.at += 1;
                    self.dot();
                }
                '[' => {
                    let class = self.class()?;
                    self.push_class(class);
                }
                '*' | '+' | '?' | '{' if self.repetition(last)? => repetition = Some(start),
                '\\' => self.escape()?,
                _ => {
                    self.at += 1;
                    self.push_character(rune);
                }
            }
        }
        self.alternate();
        if let Some(open) = self.open.last() {
            return Err(self.error(
                *open,
                "`(` is never closed",
                "add `)`, or write `\\(` for the character",
            ));
        }
        match self.stack.pop() {
            Some(Item::Node(node)) => Ok((node, self.features)),
            Some(Item::Open { .. } | Item::Bar) | None => Ok((Node::Empty, self.features)),
        }
    }

    fn peek(&self, ahead: usize) -> Option<u32> {
        self.runes.get(self.at + ahead).map(|(rune, _)| *rune)
    }

    /// Returns `true` if the text at `ahead` is this one.
    fn is_next(&self, ahead: usize, text: &str) -> bool {
        text.chars().enumerate().all(|(index, c)| self.peek(ahead + index) == Some(u32::from(c)))
    }

    /// The text from `start` to where the parser is, for messages.
    fn text_from(&self, start: usize) -> String {
        let runes = self.runes.get(start..self.at.min(self.runes.len())).unwrap_or_default();
        runes.iter().filter_map(|(rune, _)| char::from_u32(*rune)).take(MAX_ECHO).collect()
    }

    fn error(&self, start: usize, wrong: impl Into<String>, right: impl Into<String>) -> RegexError {
        let last = self.runes.last().map_or(1, |(_, column)| column + 1);
        let column = self.runes.get(start).map_or(last, |(_, column)| *column);
        RegexError { column, wrong: wrong.into(), right: right.into() }
    }

    fn column(&self, at: usize) -> usize {
        self.runes.get(at).map_or(1, |(_, column)| *column)
    }

    // The stack.

    fn push(&mut self, node: Node) {
        self.join_texts();
        self.stack.push(Item::Node(node));
    }

    /// Joins two texts on top. The topmost stays apart until something follows, because a repetition takes only one character.
    fn join_texts(&mut self) {
        let [
            ..,
            Item::Node(Node::Text { text, folds_case }),
            Item::Node(Node::Text { text: more, folds_case: other }),
        ] = &mut self.stack[..]
        else {
            return;
        };
        if folds_case == other {
            text.append(more);
            self.stack.pop();
        }
    }

    fn push_character(&mut self, rune: u32) {
        let letter = u8::try_from(rune).is_ok_and(|byte| byte.is_ascii_alphabetic());
        let rune = if self.flags.folds_case && letter { rune | 0x20 } else { rune };
        self.push(Node::character(rune, self.flags.folds_case));
    }

    /// Pushes a class. One with a single character, or with both cases of one letter, is a text.
    fn push_class(&mut self, class: Class) {
        let ranges = class.ranges();
        // RE2 asks for two ranges or characters; both cases of a letter are two of each.
        match (ranges.first(), class.len()) {
            (Some((low, _)), 1) => {
                let folds_case = self.flags.folds_case;
                self.push(Node::character(*low, folds_case));
            }
            (Some((low, _)), 2) if (65..=90).contains(low) && class.has(low + 32) => {
                self.push(Node::character(low + 32, true));
            }
            _ => self.push(Node::Class(class)),
        }
    }

    fn dot(&mut self) {
        if self.flags.dot_takes_newline {
            return self.push(Node::Any);
        }
        let mut newline = Class::default();
        newline.add(10, 10);
        self.push(Node::Class(newline.negated()));
    }

    fn anchor(&mut self, length: usize, anchor: Anchor) {
        self.at += length;
        self.push(Node::At(anchor));
    }

    fn open(&mut self, is_capture: bool, start: usize) -> Result<(), RegexError> {
        if self.open.len() >= MAX_NESTING {
            let wrong = format!("parentheses nest more than {MAX_NESTING} deep");
            return Err(self.error(start, wrong, "a flatter expression"));
        }
        self.open.push(start);
        self.join_texts();
        self.stack.push(Item::Open { is_capture, flags: self.flags });
        Ok(())
    }

    fn close(&mut self) -> Result<(), RegexError> {
        if self.open.pop().is_none() {
            return Err(self.error(self.at, "`)` closes nothing", "write `\\)` for the character"));
        }
        self.at += 1;
        self.alternate();
        let (inner, open) = (self.stack.pop(), self.stack.pop());
        let (Some(Item::Node(node)), Some(Item::Open { is_capture, flags })) = (inner, open) else {
            return Ok(());
        };
        self.flags = flags;
        self.push(if is_capture { Node::Capture(Box::new(node)) } else { node });
        Ok(())
    }

    /// Ends an alternative. The bar stays on top of the stack, above all alternatives.
    fn bar(&mut self) {
        self.join_texts();
        if !matches!(self.stack.last(), Some(Item::Node(_))) {
            self.stack.push(Item::Node(Node::Empty));
        }
        let parts = self.collapse(|node, parts| match node {
            Node::Concat(inner) => parts.extend(inner.into_iter().rev()),
            other => parts.push(other),
        });
        let mut node = Node::concat(parts);
        if matches!(self.stack.last(), Some(Item::Bar)) {
            self.stack.pop();
            // Any character includes a neighbour of one character.
            if let Some(Item::Node(before)) = self.stack.last()
                && ![before, &node].contains(&&Node::Byte)
                && before.is_one_character()
                && node.is_one_character()
                && [before, &node].contains(&&Node::Any)
            {
                self.stack.pop();
                node = Node::Any;
            }
        }
        self.stack.push(Item::Node(node));
        self.stack.push(Item::Bar);
    }

    fn alternate(&mut self) {
        self.bar();
        self.stack.pop();
        let mut n_flat = 0;
        let parts = self.collapse(|node, parts| {
            n_flat += 1;
            match node {
                Node::Alternate(inner) => parts.extend(inner.into_iter().rev()),
                other => parts.push(other),
            }
        });
        let node = if n_flat > 1 { Node::alternate(factor(parts)) } else { Node::alternate(parts) };
        self.stack.push(Item::Node(node));
    }

    /// Takes the nodes above the last marker from the stack, in order.
    fn collapse(&mut self, mut take: impl FnMut(Node, &mut Vec<Node>)) -> Vec<Node> {
        let mut parts = Vec::new();
        while let Some(Item::Node(_)) = self.stack.last() {
            let Some(Item::Node(node)) = self.stack.pop() else { break };
            take(node, &mut parts);
        }
        parts.reverse();
        parts
    }

    // Groups.

    /// Reads `(?…`: a group with a name, flags, or a group that captures nothing.
    fn group_with_flags(&mut self) -> Result<(), RegexError> {
        let start = self.at;
        for (text, name) in
            [("(?=", "look-ahead"), ("(?!", "look-ahead"), ("(?<=", "look-behind"), ("(?<!", "look-behind")]
        {
            if self.is_next(0, text) {
                let wrong = format!("RE2 has no {name}: `{text}`");
                return Err(self.error(start, wrong, "list what may be there, or use two routes"));
            }
        }
        if self.is_next(0, "(?P<") {
            return self.named_group(4);
        }
        if self.is_next(0, "(?<") {
            self.features.angle_name.get_or_insert(self.column(start));
            return self.named_group(3);
        }
        self.at += 2;
        let (mut flags, mut is_off, mut has_flag) = (self.flags, false, false);
        loop {
            let rune = self.peek(0);
            self.at += 1;
            match rune.and_then(char::from_u32) {
                Some('i') => flags.folds_case = !is_off,
                Some('m') => flags.is_multi_line = !is_off,
                Some('s') => flags.dot_takes_newline = !is_off,
                Some('U') => flags.is_lazy = !is_off,
                Some('-') if !is_off => {
                    (is_off, has_flag) = (true, false);
                    continue;
                }
                Some(end @ (':' | ')')) if has_flag || !is_off => {
                    if end == ':' {
                        self.open(false, start)?;
                    }
                    self.flags = flags;
                    return Ok(());
                }
                Some(_) | None => {
                    let wrong = format!("RE2 does not know `{}`", self.text_from(start));
                    return Err(self.error(start, wrong, "`(?:…)`, or a flag of `i`, `m`, `s`, `U`"));
                }
            }
            has_flag = true;
        }
    }

    fn named_group(&mut self, length: usize) -> Result<(), RegexError> {
        let start = self.at;
        self.at += length;
        let begin = self.at;
        while self.peek(0).is_some_and(|rune| rune != u32::from('>')) {
            self.at += 1;
        }
        let name: Vec<u32> =
            self.runes.get(begin..self.at).unwrap_or_default().iter().map(|(rune, _)| *rune).collect();
        let is_word = |rune: &u32| char::from_u32(*rune).is_some_and(|c| c.is_alphanumeric() || c == '_');
        if self.peek(0).is_none() || name.is_empty() || !name.iter().all(is_word) {
            let wrong = format!("`{}` is no name of a group", self.text_from(start));
            return Err(self.error(start, wrong, "`(?P<name>…)` with letters, digits and `_`"));
        }
        self.at += 1;
        if self.names.contains(&name) {
            self.features.repeated_name.get_or_insert(self.column(start));
        }
        self.names.push(name);
        self.open(true, start)
    }

    // Repetitions.

    /// Reads a repetition after one at `last`. Returns `false` if it is a brace that is just a character.
    fn repetition(&mut self, last: Option<usize>) -> Result<bool, RegexError> {
        let start = self.at;
        let times = match self.peek(0).and_then(char::from_u32) {
            Some('*') => Times::Star,
            Some('+') => Times::Plus,
            Some('?') => Times::Quest,
            _ => match self.braces() {
                Some(times) => times,
                None => return Ok(false),
            },
        };
        if times.is_operator() {
            self.at += 1;
        }
        let mut flags = self.flags;
        if self.peek(0) == Some(u32::from('?')) {
            self.at += 1;
            flags.is_lazy = !flags.is_lazy;
        }
        if let Some(last) = last {
            let wrong = format!("RE2 has no repetition of a repetition: `{}`", self.text_from(last));
            return Err(self.error(last, wrong, "one repetition, or `(?:…)` around the first"));
        }
        let (least, most) = times.bounds();
        if most.is_some_and(|most| most < least) || least.max(most.unwrap_or_default()) > MAX_REPEAT {
            let wrong =
                format!("`{}` repeats more than {MAX_REPEAT} times, or backwards", self.text_from(start));
            return Err(self.error(start, wrong, format!("at most {{{MAX_REPEAT}}}")));
        }
        let Some(Item::Node(of)) = self.stack.pop_if(|top| matches!(top, Item::Node(_))) else {
            let wrong = format!("`{}` repeats nothing", self.text_from(start));
            return Err(self.error(start, wrong, "something to repeat before it, or `\\` for the character"));
        };
        let node = Node::repeat(of, times, flags);
        if least.max(most.unwrap_or_default()) >= 2 && copies(&node) > MAX_REPEAT {
            let wrong = format!("repetitions in each other make more than {MAX_REPEAT} copies");
            return Err(self.error(start, wrong, "fewer repetitions"));
        }
        self.stack.push(Item::Node(node));
        Ok(true)
    }

    /// Reads `{2}`, `{2,}` or `{2,3}`. Anything else is text, and is not read.
    fn braces(&mut self) -> Option<Times> {
        let start = self.at;
        self.at += 1;
        let times = self.counts();
        if times.is_none() {
            self.at = start;
        }
        times
    }

    fn counts(&mut self) -> Option<Times> {
        let least = self.integer()?;
        let mut most = Some(least);
        if self.peek(0) == Some(u32::from(',')) {
            self.at += 1;
            most = if self.peek(0) == Some(u32::from('}')) { None } else { Some(self.integer()?) };
        }
        let is_closed = self.peek(0) == Some(u32::from('}'));
        self.at += 1;
        is_closed.then_some(Times::Counted { least, most })
    }

    /// Reads a number without leading zeros.
    fn integer(&mut self) -> Option<u32> {
        let start = self.at;
        let mut number: u32 = 0;
        while let Some(digit) = self.peek(0).and_then(char::from_u32).and_then(|c| c.to_digit(10)) {
            number = number.checked_mul(10)?.checked_add(digit).filter(|_| number < 100_000_000)?;
            self.at += 1;
        }
        let has_leading_zero =
            self.at - start > 1 && self.runes.get(start).is_some_and(|(rune, _)| *rune == 48);
        (self.at > start && !has_leading_zero).then_some(number)
    }

    // Escapes.

    fn escape(&mut self) -> Result<(), RegexError> {
        let start = self.at;
        match self.peek(1).and_then(char::from_u32) {
            Some('b') => self.anchor(2, Anchor::WordBoundary),
            Some('B') => self.anchor(2, Anchor::NoWordBoundary),
            Some('A') => self.anchor(2, Anchor::BeginText),
            Some('z') => self.anchor(2, Anchor::EndText),
            Some('C') => {
                self.features.any_byte.get_or_insert(self.column(start));
                self.at += 2;
                self.push(Node::Byte);
            }
            Some('Q') => self.quoted(),
            Some('p' | 'P') => {
                let class = self.unicode_class()?;
                self.push_class(class);
            }
            Some(letter) => match class::perl(u32::from(letter)) {
                Some(class) => {
                    self.at += 2;
                    self.push_class(class);
                }
                None => {
                    let rune = self.escaped_character()?;
                    self.push_character(rune);
                }
            },
            None => {
                let _: u32 = self.escaped_character()?;
            }
        }
        Ok(())
    }

    /// Reads `\Q…\E`, whose text means itself.
    fn quoted(&mut self) {
        self.at += 2;
        while let Some(rune) = self.peek(0) {
            if self.is_next(0, "\\E") {
                self.at += 2;
                return;
            }
            self.at += 1;
            self.push_character(rune);
        }
    }

    /// Reads an escape that stands for one character.
    fn escaped_character(&mut self) -> Result<u32, RegexError> {
        let start = self.at;
        self.at += 1;
        let Some(rune) = self.peek(0) else {
            return Err(self.error(start, "`\\` at the end escapes nothing", "`\\\\` for the character"));
        };
        self.at += 1;
        let octal = |rune: Option<u32>| rune.filter(|rune| (48..56).contains(rune)).map(|rune| rune - 48);
        let value = match char::from_u32(rune).unwrap_or_default() {
            '1'..='7' if octal(self.peek(0)).is_none() => {
                let wrong = format!("RE2 has no references to groups: `{}`", self.text_from(start));
                return Err(self.error(start, wrong, "repeat the expression"));
            }
            '0'..='7' => {
                let mut code = rune - 48;
                for _ in 0..2 {
                    let Some(digit) = octal(self.peek(0)) else { break };
                    code = code * 8 + digit;
                    self.at += 1;
                }
                Some(code)
            }
            'x' => self.hexadecimal(),
            'n' => Some(10),
            'r' => Some(13),
            't' => Some(9),
            'a' => Some(7),
            'f' => Some(12),
            'v' => Some(11),
            other => (other.is_ascii() && !other.is_ascii_alphanumeric()).then_some(rune),
        };
        let most = if self.encoding == Encoding::Latin1 { 0xff } else { 0x0010_ffff };
        match value {
            Some(value) if value <= most => Ok(value),
            Some(_) if self.encoding == Encoding::Latin1 => {
                let wrong =
                    format!("`{}` is more than a byte, and Envoy matches bytes", self.text_from(start));
                Err(self.error(start, wrong, "the character itself, which is matched as UTF-8"))
            }
            Some(_) | None => {
                let wrong = format!("RE2 does not know the escape `{}`", self.text_from(start));
                Err(self.error(start, wrong, "`\\\\` for a backslash"))
            }
        }
    }

    /// Reads two digits, or any number of them in braces.
    fn hexadecimal(&mut self) -> Option<u32> {
        let digit = |parser: &Self| parser.peek(0).and_then(char::from_u32).and_then(|c| c.to_digit(16));
        if self.peek(0) != Some(u32::from('{')) {
            let high = digit(self)?;
            self.at += 1;
            let low = digit(self)?;
            self.at += 1;
            return Some(high * 16 + low);
        }
        self.at += 1;
        let begin = self.at;
        let mut code: u32 = 0;
        while let Some(digit) = digit(self) {
            code = code.saturating_mul(16).saturating_add(digit);
            self.at += 1;
        }
        let is_closed = self.at > begin && self.peek(0) == Some(u32::from('}'));
        self.at += 1;
        is_closed.then_some(code)
    }

    // Classes.

    /// Reads `\p{Greek}` or `\pL`. Only whether it is known matters, because the size of its program is not computed.
    fn unicode_class(&mut self) -> Result<Class, RegexError> {
        let start = self.at;
        self.at += 2;
        let begin = self.at;
        let mut name = String::new();
        let is_braced = self.peek(0) == Some(u32::from('{'));
        self.at += 1;
        if is_braced {
            while let Some(rune) = self.peek(0).filter(|rune| *rune != u32::from('}')) {
                name.extend(char::from_u32(rune));
                self.at += 1;
            }
            let is_closed = self.peek(0).is_some();
            self.at += 1;
            if !is_closed {
                return Err(self.error(start, "`\\p{` is never closed", "`\\p{Greek}`"));
            }
        } else {
            name.extend(self.runes.get(begin).and_then(|(rune, _)| char::from_u32(*rune)));
        }
        self.features.has_unicode_class = true;
        if !class::is_unicode_name(name.strip_prefix('^').unwrap_or(&name)) {
            let wrong = format!("RE2 does not know the class `{}`", self.text_from(start));
            return Err(self.error(
                start,
                wrong,
                "a category such as `\\p{L}` or a script such as `\\p{Greek}`",
            ));
        }
        let mut class = Class::default();
        class.add(0, 127);
        Ok(class)
    }

    /// Reads `[…]`.
    fn class(&mut self) -> Result<Class, RegexError> {
        let start = self.at;
        self.at += 1;
        let is_negated = self.peek(0) == Some(u32::from('^'));
        self.at += usize::from(is_negated);
        let mut class = Class::default();
        let mut is_first = true;
        while let Some(rune) = self.peek(0).filter(|rune| *rune != u32::from(']') || is_first) {
            is_first = false;
            let next = self.peek(1).and_then(char::from_u32);
            let more = match (char::from_u32(rune), next) {
                (Some('['), Some(':')) => self.named_class()?,
                (Some('\\'), Some('p' | 'P')) if self.peek(2).is_some() => Some(self.unicode_class()?),
                (Some('\\'), Some(letter)) => {
                    let perl = class::perl(u32::from(letter));
                    self.at += if perl.is_some() { 2 } else { 0 };
                    perl
                }
                _ => None,
            };
            match more {
                Some(more) if self.flags.folds_case => {
                    more.ranges().into_iter().for_each(|(low, high)| class.add_folded(low, high));
                }
                Some(more) => class.union(more),
                None => self.range(start, &mut class)?,
            }
        }
        if self.peek(0).is_none() {
            return Err(self.error(
                start,
                "`[` is never closed",
                "add `]`, or write `\\[` for the character",
            ));
        }
        self.at += 1;
        Ok(if is_negated { class.negated() } else { class })
    }

    /// Reads `[:alpha:]` or `[:^alpha:]` in a class; `None` if it is not closed, and then it is text.
    fn named_class(&mut self) -> Result<Option<Class>, RegexError> {
        let start = self.at;
        let rest = self.runes.get(start + 2..).unwrap_or_default();
        let Some(length) = rest.windows(2).position(|two| two.iter().map(|(rune, _)| *rune).eq([58, 93]))
        else {
            return Ok(None);
        };
        let name: String = rest.iter().take(length).filter_map(|(rune, _)| char::from_u32(*rune)).collect();
        self.at += length + 4;
        match class::named(name.strip_prefix('^').unwrap_or(&name)) {
            Some(class) if name.starts_with('^') => Ok(Some(class.negated())),
            Some(class) => Ok(Some(class)),
            None => {
                let wrong = format!("RE2 does not know the class `{}`", self.text_from(start));
                Err(self.error(start, wrong, "a class such as `[:alpha:]`"))
            }
        }
    }

    /// Reads a character of a class, or a range of them.
    fn range(&mut self, class_start: usize, class: &mut Class) -> Result<(), RegexError> {
        let start = self.at;
        let low = self.class_character(class_start)?;
        let mut high = low;
        if self.is_next(0, "-") && self.peek(1).is_some_and(|rune| rune != u32::from(']')) {
            self.at += 1;
            high = self.class_character(class_start)?;
            if high < low {
                let wrong = format!("the range `{}` is backwards", self.text_from(start));
                return Err(self.error(start, wrong, "the lower character first"));
            }
        }
        if self.flags.folds_case {
            class.add_folded(low, high);
        } else {
            class.add(low, high);
        }
        Ok(())
    }

    fn class_character(&mut self, class_start: usize) -> Result<u32, RegexError> {
        let Some(rune) = self.peek(0) else {
            return Err(self.error(
                class_start,
                "`[` is never closed",
                "add `]`, or write `\\[` for the character",
            ));
        };
        if rune == u32::from('\\') {
            return self.escaped_character();
        }
        self.at += 1;
        Ok(rune)
    }
}

/// The number of copies that counted repetitions in each other make of the innermost part.
///
/// Costs as much as the tree is large; but trees in which it is asked for have at most ten such repetitions in each other.
fn copies(node: &Node) -> u32 {
    match node {
        Node::Repeat { times: Times::Counted { least, most }, of, .. } => {
            most.unwrap_or(*least).max(1).saturating_mul(copies(of))
        }
        Node::Repeat { of, .. } | Node::Capture(of) => copies(of),
        Node::Concat(parts) | Node::Alternate(parts) => parts.iter().map(copies).max().unwrap_or(1),
        Node::Nothing
        | Node::Empty
        | Node::Text { .. }
        | Node::Class(_)
        | Node::Any
        | Node::Byte
        | Node::At(_) => 1,
    }
}

/// RE2's own limit.
const MAX_REPEAT: u32 = 1000;

/// The limit of open parentheses. RE2 has none, Go has 1000; nobody writes so many, and each costs stack.
const MAX_NESTING: usize = 200;

/// The limit of quoted characters in a message.
const MAX_ECHO: usize = 30;
