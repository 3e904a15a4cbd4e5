//! The size of the program that RE2 makes of an expression, which Envoy limits.
//!
//! The steps are RE2's: the tree is simplified, compiled to instructions, and these are laid out in lists. The program itself is not kept.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "each function concerns a few of the many kinds of nodes"
)]

use std::collections::{HashSet, VecDeque};

use super::node::{Anchor, Flags, Node, Times};

/// The size of the program for bytes. All sizes above [`MAX_SIZE`] count as one more than it.
pub(super) fn size(node: Node) -> usize {
    if weight(&node) > MAX_WEIGHT {
        MAX_SIZE + 1
    } else {
        laid_out(node).unwrap_or(MAX_SIZE + 1).min(MAX_SIZE + 1)
    }
}

/// The size of the program; `None` if it is too large to be made.
fn laid_out(node: Node) -> Option<usize> {
    let mut node = simplified(joined(without_prefix(node)));
    let is_anchored = take_anchor(&mut node, true, 0);
    take_anchor(&mut node, false, 0);
    let mut program = Program::default();
    program.add(Op::Fail);
    let all = program.compile(&node)?;
    let end = program.add(Op::Match);
    let all = program.concat(all, Fragment { begin: end, ends: Vec::new(), is_nullable: false });
    let start = all.begin;
    let mut unanchored = start;
    if !is_anchored {
        let any = program.bytes(0, 255);
        let any = program.repeat(any, Times::Star, true);
        unanchored = program.concat(any, all).begin;
    }
    if program.instructions.len() > MAX_INSTRUCTIONS {
        return None;
    }
    if start == 0 && unanchored == 0 {
        return Some(1);
    }
    program.skip_nops(start, unanchored);
    program.mark_ends(start);
    Some(program.n_laid_out(start, unanchored))
}

/// Removes `^text` at the beginning, which RE2 compares without the program.
fn without_prefix(node: Node) -> Node {
    let Node::Concat(parts) = &node else { return node };
    let n_anchors = parts.iter().take_while(|part| **part == Node::At(Anchor::BeginText)).count();
    match parts.get(n_anchors..) {
        Some([Node::Text { .. }, rest @ ..]) if n_anchors > 0 => Node::concat(rest.to_vec()),
        _ => node,
    }
}

/// About the number of instructions, with repetitions written out.
pub(super) fn weight(node: &Node) -> usize {
    match node {
        Node::Nothing | Node::Empty | Node::Class(_) | Node::Any | Node::Byte | Node::At(_) => 1,
        Node::Text { text, .. } => text.len(),
        Node::Concat(parts) | Node::Alternate(parts) => {
            parts.iter().map(weight).fold(1, usize::saturating_add)
        }
        Node::Capture(of) => weight(of).saturating_add(2),
        Node::Repeat { times, of, .. } => {
            let (least, most) = times.bounds();
            let n = least.max(most.unwrap_or_default()).max(1);
            weight(of).saturating_add(1).saturating_mul(n as usize)
        }
    }
}

/// Joins repetitions of the same character that follow each other: `a*a+` becomes `a{1,}`.
fn joined(node: Node) -> Node {
    match node {
        Node::Concat(parts) => {
            let mut rest: VecDeque<Node> = parts.into_iter().map(joined).collect();
            let mut done = Vec::new();
            while let Some(first) = rest.pop_front() {
                match rest.pop_front() {
                    Some(second) => match join(&first, &second) {
                        Some((joined, Some(remainder))) => {
                            done.push(joined);
                            rest.push_front(remainder);
                        }
                        Some((joined, None)) => rest.push_front(joined),
                        None => {
                            done.push(first);
                            rest.push_front(second);
                        }
                    },
                    None => done.push(first),
                }
            }
            // RE2 keeps a concatenation of one; that makes no difference for the program.
            Node::concat(done)
        }
        Node::Alternate(parts) => Node::Alternate(parts.into_iter().map(joined).collect()),
        Node::Repeat { times, flags, of } => Node::Repeat { times, flags, of: Box::new(joined(*of)) },
        Node::Capture(of) => Node::Capture(Box::new(joined(*of))),
        other => other,
    }
}

/// Both nodes as one repetition, with what remains of the second, if they repeat the same character.
fn join(first: &Node, second: &Node) -> Option<(Node, Option<Node>)> {
    let Node::Repeat { times, flags, of } = first else { return None };
    if !of.is_one_character() {
        return None;
    }
    let (least, most) = times.bounds();
    let joined = |more: u32, more_most: Option<u32>| {
        let most = most.zip(more_most).map(|(most, more)| most + more);
        Node::Repeat { times: Times::Counted { least: least + more, most }, flags: *flags, of: of.clone() }
    };
    if let Node::Repeat { times, flags: other, of: same } = second
        && same == of
        && other.is_lazy == flags.is_lazy
    {
        let (more, more_most) = times.bounds();
        return Some((joined(more, more_most), None));
    }
    if second == &**of {
        return Some((joined(1, Some(1)), None));
    }
    let (Node::Text { text: one, folds_case }, Node::Text { text, folds_case: other }) = (&**of, second)
    else {
        return None;
    };
    let n = text.iter().take_while(|rune| Some(*rune) == one.first()).count();
    if n == 0 || folds_case != other {
        return None;
    }
    let rest = text.get(n..).filter(|rest| !rest.is_empty()).map(<[u32]>::to_vec);
    let rest = rest.map(|text| Node::Text { text, folds_case: *folds_case });
    let n = u32::try_from(n).ok()?;
    Some((joined(n, Some(n)), rest))
}

/// Writes counted repetitions as copies; the optional ones stay a repetition `{0,n}`, which is compiled as `(x(x(x)?)?)?`.
fn simplified(node: Node) -> Node {
    match node {
        Node::Class(class) if class.len() == 0 => Node::Nothing,
        Node::Concat(parts) => Node::Concat(parts.into_iter().map(simplified).collect()),
        Node::Alternate(parts) => Node::Alternate(parts.into_iter().map(simplified).collect()),
        Node::Capture(of) => Node::Capture(Box::new(simplified(*of))),
        Node::Repeat { times, flags, of } => match simplified(*of) {
            Node::Empty => Node::Empty,
            of => match times {
                Times::Counted { least, most } => copies(of, least, most, flags),
                Times::Star | Times::Plus | Times::Quest => operator(of, times, flags),
            },
        },
        other => other,
    }
}

/// An operator; twice the same one with the same flags is one.
fn operator(of: Node, times: Times, flags: Flags) -> Node {
    match &of {
        Node::Repeat { times: inner, flags: inner_flags, .. } if *inner_flags == flags => match inner {
            Times::Counted { .. } if times == Times::Quest => of,
            Times::Counted { .. } => Node::Repeat { times, flags, of: Box::new(of) },
            inner if *inner == times => of,
            _ => Node::Repeat { times, flags, of: Box::new(of) },
        },
        _ => Node::Repeat { times, flags, of: Box::new(of) },
    }
}

fn copies(of: Node, least: u32, most: Option<u32>, flags: Flags) -> Node {
    let is_anchor = |node: &Node| matches!(node, Node::At(_));
    let takes_nothing = match &of {
        Node::Concat(parts) | Node::Alternate(parts) => parts.iter().all(is_anchor),
        other => is_anchor(other),
    };
    let (least, most) =
        if takes_nothing { (least.min(1), most.map(|most| most.min(1))) } else { (least, most) };
    let repeat = |n: u32| std::iter::repeat_n(of.clone(), n as usize);
    let plus = |of: Node| match of {
        // `(x(x)?)?` repeated at least once is `x(x)?` repeated.
        Node::Repeat { times: Times::Counted { most: Some(most), .. }, flags: inner, of }
            if inner == flags =>
        {
            let rest = copies(Node::clone(&of), 0, Some(most - 1), flags);
            Node::Repeat { times: Times::Star, flags, of: Box::new(Node::Concat(vec![*of, rest])) }
        }
        of => Node::repeat(of, Times::Plus, flags),
    };
    match (least, most) {
        (0, Some(0)) => Node::Empty,
        (0, None) => match plus(of) {
            Node::Repeat { times: Times::Plus, flags, of } => Node::repeat(*of, Times::Star, flags),
            star => star,
        },
        (1, None) => plus(of),
        (least, None) => {
            let last = plus(of.clone());
            Node::concat(repeat(least - 1).chain([last]).collect())
        }
        (0, Some(1)) => Node::repeat(of, Times::Quest, flags),
        (0, Some(most)) => {
            Node::Repeat { times: Times::Counted { least: 0, most: Some(most) }, flags, of: Box::new(of) }
        }
        (least, Some(most)) if most <= least => Node::concat(repeat(least).collect()),
        (least, Some(most)) => {
            let optional = copies(of.clone(), 0, Some(most - least), flags);
            Node::Concat(vec![Node::concat(repeat(least).collect()), optional])
        }
    }
}

/// Removes an anchor at the beginning or end, for which a program needs no instruction. RE2 looks four levels deep.
fn take_anchor(node: &mut Node, is_begin: bool, depth: usize) -> bool {
    if depth >= 4 {
        return false;
    }
    match node {
        Node::Concat(parts) => {
            let part = if is_begin { parts.first_mut() } else { parts.last_mut() };
            part.is_some_and(|part| take_anchor(part, is_begin, depth + 1))
        }
        Node::Capture(of) => take_anchor(of, is_begin, depth + 1),
        Node::At(Anchor::BeginText) if is_begin => {
            *node = Node::Empty;
            true
        }
        Node::At(Anchor::EndText | Anchor::Dollar) if !is_begin => {
            *node = Node::Empty;
            true
        }
        _ => false,
    }
}

/// The kind of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Fail,
    Match,
    Nop,
    /// Takes a byte of a range.
    Bytes {
        is_any: bool,
    },
    Capture,
    Anchor,
    Alternate,
    /// An alternative of any byte and the end, which costs one more.
    AlternateEnd,
}

#[derive(Clone, Copy, Debug)]
struct Instruction {
    op: Op,
    /// The next instructions; 0 is the failure.
    next: [usize; 2],
}

/// A part of a program.
struct Fragment {
    /// 0 if it matches nothing.
    begin: usize,
    /// The instructions that lead out of it, and by which of their ways.
    ends: Vec<(usize, usize)>,
    is_nullable: bool,
}

#[derive(Default)]
struct Program {
    instructions: Vec<Instruction>,
}

impl Program {
    fn add(&mut self, op: Op) -> usize {
        self.instructions.push(Instruction { op, next: [0, 0] });
        self.instructions.len() - 1
    }

    fn at(&self, index: usize) -> Instruction {
        self.instructions.get(index).copied().unwrap_or(Instruction { op: Op::Fail, next: [0, 0] })
    }

    fn set(&mut self, ends: &[(usize, usize)], to: usize) {
        for (index, way) in ends {
            if let Some(next) = self.instructions.get_mut(*index).and_then(|one| one.next.get_mut(*way)) {
                *next = to;
            }
        }
    }

    fn single(&mut self, op: Op, is_nullable: bool) -> Fragment {
        let begin = self.add(op);
        Fragment { begin, ends: vec![(begin, 0)], is_nullable }
    }

    fn bytes(&mut self, low: u32, high: u32) -> Fragment {
        self.single(Op::Bytes { is_any: (low, high) == (0, 255) }, false)
    }

    /// Compiles a node; `None` if the program gets too large.
    fn compile(&mut self, node: &Node) -> Option<Fragment> {
        if self.instructions.len() > MAX_INSTRUCTIONS {
            return None;
        }
        Some(match node {
            Node::Nothing => Fragment { begin: 0, ends: Vec::new(), is_nullable: false },
            Node::Empty => self.single(Op::Nop, true),
            Node::Text { text, .. } => {
                let characters = text.iter().map(|rune| self.bytes(*rune, *rune)).collect::<Vec<_>>();
                self.concat_all(characters)
            }
            Node::Class(class) => self.class(*class),
            Node::Any | Node::Byte => self.bytes(0, 255),
            Node::At(_) => self.single(Op::Anchor, true),
            Node::Concat(parts) => {
                let parts = parts.iter().map(|part| self.compile(part)).collect::<Option<Vec<_>>>()?;
                self.concat_all(parts)
            }
            Node::Alternate(parts) => {
                let parts = parts.iter().map(|part| self.compile(part)).collect::<Option<Vec<_>>>()?;
                let mut parts = parts.into_iter();
                let first = parts.next()?;
                parts.fold(first, |one, other| self.alternate(one, other))
            }
            Node::Repeat { times: Times::Counted { most, .. }, flags, of } => {
                let n = most.unwrap_or(1).saturating_sub(1);
                let copies = (0..n).map(|_| self.compile(of)).collect::<Option<Vec<_>>>()?;
                let innermost = Node::repeat(Node::clone(of), Times::Quest, *flags);
                let mut optional = self.compile(&innermost)?;
                for copy in copies.into_iter().rev() {
                    let inner = self.concat(copy, optional);
                    optional = self.repeat(inner, Times::Quest, flags.is_lazy);
                }
                optional
            }
            Node::Repeat { times, flags, of } => {
                let of = self.compile(of)?;
                self.repeat(of, *times, flags.is_lazy)
            }
            Node::Capture(of) => {
                let of = self.compile(of)?;
                if of.begin == 0 {
                    return Some(of);
                }
                let (open, close) = (self.add(Op::Capture), self.add(Op::Capture));
                self.set(&[(open, 0)], of.begin);
                self.set(&of.ends, close);
                Fragment { begin: open, ends: vec![(close, 0)], is_nullable: of.is_nullable }
            }
        })
    }

    fn concat_all(&mut self, parts: Vec<Fragment>) -> Fragment {
        let mut parts = parts.into_iter();
        let Some(first) = parts.next() else { return self.single(Op::Nop, true) };
        parts.fold(first, |one, other| self.concat(one, other))
    }

    fn concat(&mut self, one: Fragment, other: Fragment) -> Fragment {
        if one.begin == 0 || other.begin == 0 {
            return Fragment { begin: 0, ends: Vec::new(), is_nullable: false };
        }
        self.set(&one.ends, other.begin);
        if self.at(one.begin).op == Op::Nop && one.ends == [(one.begin, 0)] {
            return other;
        }
        let is_nullable = one.is_nullable && other.is_nullable;
        Fragment { begin: one.begin, ends: other.ends, is_nullable }
    }

    fn alternate(&mut self, one: Fragment, other: Fragment) -> Fragment {
        match (one.begin, other.begin) {
            (0, _) => other,
            (_, 0) => one,
            (first, second) => {
                let begin = self.add(Op::Alternate);
                self.set(&[(begin, 0)], first);
                self.set(&[(begin, 1)], second);
                let mut ends = one.ends;
                ends.extend(other.ends);
                Fragment { begin, ends, is_nullable: one.is_nullable || other.is_nullable }
            }
        }
    }

    fn repeat(&mut self, of: Fragment, times: Times, is_lazy: bool) -> Fragment {
        if times == Times::Star && of.is_nullable {
            let plus = self.repeat(of, Times::Plus, is_lazy);
            return self.repeat(plus, Times::Quest, is_lazy);
        }
        if of.begin == 0 && times == Times::Quest {
            return self.single(Op::Nop, true);
        }
        let alternate = self.add(Op::Alternate);
        // The first way is preferred.
        let (way, out) = if is_lazy { (1, 0) } else { (0, 1) };
        self.set(&[(alternate, way)], of.begin);
        if times == Times::Quest {
            let ends = [(alternate, out)].into_iter().chain(of.ends).collect();
            return Fragment { begin: alternate, ends, is_nullable: true };
        }
        self.set(&of.ends, alternate);
        let begin = if times == Times::Plus { of.begin } else { alternate };
        let is_nullable = times == Times::Star || of.is_nullable;
        Fragment { begin, ends: vec![(alternate, out)], is_nullable }
    }

    fn class(&mut self, class: super::class::Class) -> Fragment {
        let ignores_case = class.ignores_case();
        let mut found: Option<Fragment> = None;
        for (low, high) in class.ranges() {
            // The range of the small letters stands for both.
            if ignores_case && low >= u32::from(b'A') && high <= u32::from(b'Z') {
                continue;
            }
            let range = self.bytes(low, high);
            found = Some(match found {
                Some(before) => self.alternate(before, range),
                None => range,
            });
        }
        found.unwrap_or(Fragment { begin: 0, ends: Vec::new(), is_nullable: false })
    }

    /// The instructions that `next` gives, from `start`, each once.
    fn reach(&self, start: usize, mut next: impl FnMut(usize, Instruction) -> Vec<usize>) -> Vec<usize> {
        let mut seen = HashSet::new();
        let (mut left, mut order) = (vec![start], Vec::new());
        while let Some(index) = left.pop() {
            if !seen.insert(index) {
                continue;
            }
            order.push(index);
            left.extend(next(index, self.at(index)).into_iter().rev());
        }
        order
    }

    fn skip_nops(&mut self, start: usize, unanchored: usize) {
        for from in [start, unanchored] {
            for index in self.reach(from, |_, one| one.ways().collect()) {
                for way in [0, 1] {
                    let mut to = self.at(index).next.get(way).copied().unwrap_or_default();
                    while to != 0 && self.at(to).op == Op::Nop {
                        [to, _] = self.at(to).next;
                    }
                    self.set(&[(index, way)], to);
                }
            }
            if start == from {
                // RE2 follows only what the anchored program reaches.
                break;
            }
        }
    }

    /// Finds loops of any byte before the end.
    fn mark_ends(&mut self, start: usize) {
        for index in self.reach(start, |_, one| one.ways().collect()) {
            let one = self.at(index);
            let [first, second] = one.next;
            let is_loop = |way: usize| {
                let way = self.at(way);
                way.op == Op::Bytes { is_any: true } && way.next.first() == Some(&index)
            };
            let is_end = is_loop(first) && self.is_end(second) || self.is_end(first) && is_loop(second);
            if one.op == Op::Alternate
                && is_end
                && let Some(one) = self.instructions.get_mut(index)
            {
                one.op = Op::AlternateEnd;
            }
        }
    }

    fn is_end(&self, index: usize) -> bool {
        let mut at = index;
        loop {
            let one = self.at(at);
            match one.op {
                Op::Match => return true,
                Op::Capture | Op::Nop => [at, _] = one.next,
                Op::Fail | Op::Bytes { .. } | Op::Anchor | Op::Alternate | Op::AlternateEnd => return false,
            }
        }
    }

    /// The number of instructions when alternatives are written as lists. An instruction begins a list if something leads to it that takes
    /// a byte or tests a condition, or if two lists share it.
    fn n_laid_out(&self, start: usize, unanchored: usize) -> usize {
        let mut heads = Heads::default();
        heads.is_head.resize(self.instructions.len(), false);
        [0, unanchored, start].into_iter().for_each(|index| heads.mark(index));
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); self.instructions.len()];
        self.reach(unanchored, |index, one| {
            if one.is_alternate() {
                for way in one.next {
                    before.get_mut(way).into_iter().for_each(|before| before.push(index));
                }
            } else if one.takes() {
                one.next.into_iter().take(1).for_each(|next| heads.mark(next));
            }
            one.ways().collect()
        });
        let mut sorted = heads.list.clone();
        sorted.sort_unstable();
        for head in sorted.into_iter().skip(1).rev().filter(|head| ![start, unanchored].contains(head)) {
            let reached = self.reach_in_list(head, &heads);
            let is_reached: HashSet<usize> = reached.iter().copied().collect();
            for index in reached {
                let is_shared = |before: &Vec<usize>| before.iter().any(|one| !is_reached.contains(one));
                if before.get(index).is_some_and(is_shared) {
                    heads.mark(index);
                }
            }
        }
        heads.list.iter().map(|head| self.n_in_list(*head, &heads)).sum()
    }

    /// The instructions of a list, including the heads of others that it leads to.
    fn reach_in_list(&self, head: usize, heads: &Heads) -> Vec<usize> {
        self.reach(head, |index, one| {
            let is_other = index != head && heads.has(index);
            if is_other || one.takes() { Vec::new() } else { one.ways().collect() }
        })
    }

    fn n_in_list(&self, head: usize, heads: &Heads) -> usize {
        let cost = |index: &usize| match self.at(*index).op {
            _ if *index != head && heads.has(*index) => 1,
            Op::Alternate | Op::Nop => 0,
            Op::AlternateEnd | Op::Fail | Op::Match | Op::Bytes { .. } | Op::Capture | Op::Anchor => 1,
        };
        self.reach_in_list(head, heads).iter().map(cost).sum()
    }
}

/// The instructions that begin lists.
#[derive(Default)]
struct Heads {
    list: Vec<usize>,
    is_head: Vec<bool>,
}

impl Heads {
    fn mark(&mut self, index: usize) {
        if self.is_head.get_mut(index).is_some_and(|head| !std::mem::replace(head, true)) {
            self.list.push(index);
        }
    }

    fn has(&self, index: usize) -> bool {
        self.is_head.get(index).copied().unwrap_or_default()
    }
}

impl Instruction {
    fn is_alternate(self) -> bool {
        matches!(self.op, Op::Alternate | Op::AlternateEnd)
    }

    /// Returns `true` for an instruction that ends a list: it takes a byte, tests a condition or remembers a place.
    fn takes(self) -> bool {
        matches!(self.op, Op::Bytes { .. } | Op::Capture | Op::Anchor)
    }

    fn ways(self) -> impl Iterator<Item = usize> {
        let n = match self.op {
            Op::Fail | Op::Match => 0,
            Op::Nop | Op::Bytes { .. } | Op::Capture | Op::Anchor => 1,
            Op::Alternate | Op::AlternateEnd => 2,
        };
        self.next.into_iter().take(n)
    }
}

/// The limit of sizes that are computed. Envoy refuses more than 100 by default.
pub(super) const MAX_SIZE: usize = 1000;

/// The limit of instructions while a program is made; laid out in lists, it becomes smaller.
const MAX_INSTRUCTIONS: usize = 2 * MAX_SIZE;

/// The limit of the tree with repetitions written out.
const MAX_WEIGHT: usize = 4 * MAX_SIZE;
