//! Expressions in CEL, of which only those are accepted that cannot run for long.

pub(crate) use crate::values::{Variables, variables, with_result};
use crate::{
    error::{ExpressionError, MAX_EXPRESSION_BYTES},
    values,
};
use cel::{
    Value,
    common::ast::{ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators},
    parser::{ParseError, PrattParser},
};
use std::collections::BTreeSet;

/// Depth of brackets that the parser is given at most.
const MAX_BRACKETS: usize = 16;

/// Depth of the parts of an expression at most, in the parser's view, for which
/// `a && b && c` is two levels.
const MAX_DEPTH: usize = 64;

/// Recursion of the parser; brackets are bounded before.
const MAX_RECURSION: u16 = 48;

/// The most parts of an expression: names, numbers, operators.
const MAX_PARTS: usize = 500;

/// Functions, besides operators and macros.
const FUNCTIONS: [&str; 10] = [
    "bool",
    "contains",
    "double",
    "endsWith",
    "int",
    "size",
    "startsWith",
    "string",
    "type",
    "uint",
];

/// Operators, and what macros are made of.
const OPERATORS: [&str; 19] = [
    operators::CONDITIONAL,
    operators::LOGICAL_AND,
    operators::LOGICAL_OR,
    operators::LOGICAL_NOT,
    operators::SUBSTRACT,
    operators::ADD,
    operators::MULTIPLY,
    operators::DIVIDE,
    operators::MODULO,
    operators::EQUALS,
    operators::NOT_EQUALS,
    operators::GREATER_EQUALS,
    operators::LESS_EQUALS,
    operators::GREATER,
    operators::LESS,
    operators::NEGATE,
    operators::INDEX,
    operators::IN,
    operators::NOT_STRICTLY_FALSE,
];

/// Texts that an expression compares with names.
#[derive(Debug, Default)]
pub(crate) struct Compared<'a> {
    /// Capabilities, each with whether it is the beginning of one.
    pub(crate) capabilities: BTreeSet<(&'a str, bool)>,
    /// Roles.
    pub(crate) roles: BTreeSet<&'a str>,
    /// Names of arguments.
    arguments: BTreeSet<&'a str>,
}

/// An expression that has been understood, and that takes no longer than is proportional to what it
/// is asked about, times its own length, times the number of values where it compares lists in a loop.
#[derive(Debug)]
pub(crate) struct Expression {
    parsed: IdedExpr,
}

impl Expression {
    pub(crate) fn new(text: &str) -> Result<Self, ExpressionError> {
        Self::with(text, &[])
    }

    /// An expression that may ask about a result, too.
    pub(crate) fn about_result(text: &str) -> Result<Self, ExpressionError> {
        Self::with(text, &[values::RESULT])
    }

    fn with(text: &str, more: &[&'static str]) -> Result<Self, ExpressionError> {
        if MAX_EXPRESSION_BYTES < text.len() {
            return Err(ExpressionError::TooLong);
        }
        if MAX_BRACKETS < brackets(text) {
            return Err(ExpressionError::TooDeep);
        }
        let parser = PrattParser::new()
            .max_recursion_depth(MAX_RECURSION)
            .max_expression_node_count(MAX_PARTS)
            .error_recovery_limit(1);
        let parsed = parser.parse(text).map_err(|errors| {
            errors
                .errors
                .first()
                .map_or(ExpressionError::TooDeep, syntax_error)
        })?;
        let mut walk = Walk {
            variables: more.to_vec(),
            ..Walk::default()
        };
        walk.expression(&parsed, 0)?;
        match may_be_boolean(&parsed) {
            true => Ok(Self { parsed }),
            false => Err(ExpressionError::NotBoolean),
        }
    }

    /// Names of the arguments that it reads or asks for: `args.NAME`, `has(args.NAME)`, `args['NAME']`, `'NAME' in args`.
    pub(crate) fn arguments(&self) -> BTreeSet<&str> {
        self.reads().names
    }

    fn reads(&self) -> Reads<'_> {
        let mut reads = Reads::default();
        read_arguments(&self.parsed, &mut reads);
        reads
    }

    /// Texts that it compares with names: the capability, and the roles of the caller.
    pub(crate) fn compared(&self) -> Compared<'_> {
        let mut compared = Compared::default();
        read_compared(&self.parsed, &mut Vec::new(), &mut compared);
        compared
    }

    /// `None` where it fails, or is neither true nor false.
    pub(crate) fn evaluate(&self, variables: &Variables) -> Option<bool> {
        // A number that CEL would take for the one next to it is no reason for anything.
        let inexact = variables.inexact();
        if !inexact.is_empty() {
            let reads = self.reads();
            let is_read = |name: &String| reads.names.contains(name.as_str());
            if reads.any || inexact.iter().any(is_read) {
                return None;
            }
        }
        match Value::resolve(&self.parsed, variables.context()) {
            Ok(Value::Bool(truth)) => Some(truth),
            _ => None,
        }
    }
}

/// Arguments that an expression reads.
#[derive(Default)]
struct Reads<'a> {
    /// Arguments that it names.
    names: BTreeSet<&'a str>,
    /// True if it may read any of them, by a name that is not in its text.
    any: bool,
}

/// Adds the arguments that a part of an expression reads. Bounded, since what [`Walk`] lets through is.
fn read_arguments<'a>(part: &'a IdedExpr, reads: &mut Reads<'a>) {
    let is_arguments =
        |it: &IdedExpr| matches!(&it.expr, Expr::Ident(name) if name == values::ARGUMENTS);
    match &part.expr {
        Expr::Select(select) if is_arguments(&select.operand) => {
            reads.names.insert(&select.field);
        }
        Expr::Select(select) => read_arguments(&select.operand, reads),
        Expr::Call(call) => {
            if let (operators::INDEX, [of, name]) | (operators::IN, [name, of]) =
                (call.func_name.as_str(), call.args.as_slice())
                && let Expr::Literal(LiteralValue::String(name)) = &name.expr
                && is_arguments(of)
            {
                reads.names.insert(name);
                return;
            }
            let parts = call.target.as_deref().into_iter().chain(&call.args);
            parts.for_each(|it| read_arguments(it, reads));
        }
        Expr::List(list) => list
            .elements
            .iter()
            .for_each(|it| read_arguments(it, reads)),
        Expr::Map(map) => {
            for entry in &map.entries {
                if let EntryExpr::MapEntry(entry) = &entry.expr {
                    read_arguments(&entry.key, reads);
                    read_arguments(&entry.value, reads);
                }
            }
        }
        // `args.exists(name, name == 'NAME')`.
        Expr::Comprehension(it)
            if is_arguments(&it.iter_range) && it.iter_var != values::ARGUMENTS =>
        {
            let mut loops = vec![(it.iter_var.as_str(), values::ARGUMENTS)];
            let mut compared = Compared::default();
            for part in [&it.loop_cond, &it.loop_step] {
                read_compared(part, &mut loops, &mut compared);
                read_arguments(part, reads);
            }
            reads.names.extend(compared.arguments);
            reads.any = true;
        }
        // A variable of a loop may have the same name.
        Expr::Comprehension(it) if it.iter_var == values::ARGUMENTS => {
            read_arguments(&it.iter_range, reads);
        }
        Expr::Comprehension(it) => {
            for part in [
                &it.iter_range,
                &it.accu_init,
                &it.loop_cond,
                &it.loop_step,
                &it.result,
            ] {
                read_arguments(part, reads);
            }
        }
        Expr::Ident(name) => reads.any |= name == values::ARGUMENTS,
        Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => {}
    }
}

/// Adds the texts that a part of an expression compares with the capability, with roles and with the variables of `loops`,
/// each with what it runs over. Bounded, since what [`Walk`] lets through is.
fn read_compared<'a>(
    part: &'a IdedExpr,
    loops: &mut Vec<(&'a str, &'static str)>,
    compared: &mut Compared<'a>,
) {
    let stands_for = |it: &IdedExpr, loops: &[(&'a str, &'static str)]| {
        let Expr::Ident(name) = &it.expr else {
            return None;
        };
        let of_loop = loops.iter().rev().find(|(variable, _)| variable == name);
        match of_loop {
            Some((_, over)) => Some((*over, true)),
            None => {
                let mut names = ["capability", "roles", values::ARGUMENTS].into_iter();
                names.find(|it| it == name).map(|it| (it, false))
            }
        }
    };
    match &part.expr {
        Expr::Call(call) => {
            let mut note = |name: &'a IdedExpr, text: &'a IdedExpr, is_beginning| {
                let texts: Vec<&IdedExpr> = match &text.expr {
                    Expr::List(list) => list.elements.iter().collect(),
                    _ => vec![text],
                };
                let texts = texts.into_iter().filter_map(|it| match &it.expr {
                    Expr::Literal(LiteralValue::String(text)) => Some(&**text),
                    _ => None,
                });
                match stands_for(name, loops) {
                    Some(("capability", false)) => {
                        compared
                            .capabilities
                            .extend(texts.map(|it| (it, is_beginning)));
                    }
                    Some(("roles", true)) if !is_beginning => compared.roles.extend(texts),
                    Some((values::ARGUMENTS, true)) if !is_beginning => {
                        compared.arguments.extend(texts);
                    }
                    _ => {}
                }
            };
            let target = call.target.as_deref();
            match (call.func_name.as_str(), target, call.args.as_slice()) {
                (operators::EQUALS | operators::NOT_EQUALS, None, [one, other]) => {
                    note(one, other, false);
                    note(other, one, false);
                }
                (operators::IN, None, [one, list]) => {
                    note(one, list, false);
                    if let (Some(("roles", false)), Expr::Literal(LiteralValue::String(role))) =
                        (stands_for(list, loops), &one.expr)
                    {
                        compared.roles.insert(role);
                    }
                }
                ("startsWith", Some(name), [text]) => note(name, text, true),
                _ => {}
            }
            let parts = target.into_iter().chain(&call.args);
            parts.for_each(|it| read_compared(it, loops, compared));
        }
        Expr::Select(select) => read_compared(&select.operand, loops, compared),
        Expr::List(list) => {
            let elements = list.elements.iter();
            elements.for_each(|it| read_compared(it, loops, compared));
        }
        Expr::Map(map) => {
            for entry in &map.entries {
                if let EntryExpr::MapEntry(entry) = &entry.expr {
                    read_compared(&entry.key, loops, compared);
                    read_compared(&entry.value, loops, compared);
                }
            }
        }
        Expr::Comprehension(it) => {
            read_compared(&it.iter_range, loops, compared);
            let over = match stands_for(&it.iter_range, loops) {
                Some((over, false)) => over,
                _ => "",
            };
            loops.push((&it.iter_var, over));
            for part in [&it.accu_init, &it.loop_cond, &it.loop_step, &it.result] {
                read_compared(part, loops, compared);
            }
            loops.pop();
        }
        Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => {}
    }
}

/// Tests if it can be true or false, as far as can be told without a call: what arguments hold is not
/// known. Bounded, since what [`Walk`] lets through is.
fn may_be_boolean(part: &IdedExpr) -> bool {
    match &part.expr {
        Expr::Literal(literal) => matches!(literal, LiteralValue::Boolean(_)),
        Expr::Ident(name) => !values::VARIABLES.contains(&name.as_str()),
        Expr::Call(call) => match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::CONDITIONAL, [_, yes, no]) => may_be_boolean(yes) && may_be_boolean(no),
            (
                operators::ADD
                | operators::SUBSTRACT
                | operators::MULTIPLY
                | operators::DIVIDE
                | operators::MODULO
                | operators::NEGATE
                | "double"
                | "int"
                | "size"
                | "string"
                | "type"
                | "uint",
                _,
            ) => false,
            _ => true,
        },
        // `filter` begins with a list, `all` and `exists` with one of the two.
        Expr::Comprehension(comprehension) => may_be_boolean(&comprehension.accu_init),
        Expr::List(_) | Expr::Map(_) | Expr::Struct(_) => false,
        Expr::Select(_) | Expr::Unspecified => true,
    }
}

fn syntax_error(error: &ParseError) -> ExpressionError {
    let (line, column) = error.pos;
    ExpressionError::Syntax {
        line: usize::try_from(line).unwrap_or(1).max(1),
        column: usize::try_from(column).unwrap_or(1).max(1),
        message: error.msg.clone(),
    }
}

/// Depth of brackets, with the number of choices (`? :`) that follow each other; those in quotes
/// count too, so that nothing has to be known of quotes.
fn brackets(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' | b'?' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// A walk through an expression that looks for what is not accepted.
#[derive(Default)]
struct Walk<'a> {
    /// The variables of the loops around.
    variables: Vec<&'a str>,
    loops: usize,
}

impl<'a> Walk<'a> {
    fn expression(&mut self, part: &'a IdedExpr, depth: usize) -> Result<(), ExpressionError> {
        if MAX_DEPTH <= depth {
            return Err(ExpressionError::TooDeep);
        }
        let inside = depth + 1;
        match &part.expr {
            Expr::Unspecified | Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) => self.expression(&select.operand, inside),
            Expr::List(list) => list
                .elements
                .iter()
                .try_for_each(|element| self.expression(element, inside)),
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => {
                    self.expression(&entry.key, inside)?;
                    self.expression(&entry.value, inside)
                }
                EntryExpr::StructField(_) => Err(ExpressionError::Message),
            }),
            Expr::Struct(_) => Err(ExpressionError::Message),
            Expr::Call(call) => {
                let name = call.func_name.as_str();
                if !OPERATORS.contains(&name) && !FUNCTIONS.contains(&name) {
                    return Err(ExpressionError::UnknownFunction(name.to_owned()));
                }
                let mut parts = call.target.as_deref().into_iter().chain(&call.args);
                parts.try_for_each(|part| self.expression(part, inside))
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension, inside),
        }
    }

    fn comprehension(
        &mut self,
        comprehension: &'a ComprehensionExpr,
        depth: usize,
    ) -> Result<(), ExpressionError> {
        self.expression(&comprehension.iter_range, depth)?;
        self.expression(&comprehension.accu_init, depth)?;
        if 0 < self.loops {
            return Err(ExpressionError::NestedLoop);
        }
        if appends_other_than_its_variable(&comprehension.loop_step, comprehension) {
            return Err(ExpressionError::Map);
        }
        let known = self.variables.len();
        let second = comprehension.iter_var2.as_deref();
        self.variables.extend(second);
        self.variables.push(&comprehension.iter_var);
        self.variables.push(&comprehension.accu_var);
        self.loops += 1;
        for part in [
            &comprehension.loop_cond,
            &comprehension.loop_step,
            &comprehension.result,
        ] {
            self.expression(part, depth)?;
        }
        self.loops -= 1;
        self.variables.truncate(known);
        Ok(())
    }

    fn variable(&self, name: &str) -> Result<(), ExpressionError> {
        if values::VARIABLES.contains(&name) || self.variables.contains(&name) {
            return Ok(());
        }
        Err(ExpressionError::UnknownVariable(name.to_owned()))
    }
}

/// `filter` appends its variable to what it has; whatever appends anything else is a `map`.
fn appends_other_than_its_variable(step: &IdedExpr, comprehension: &ComprehensionExpr) -> bool {
    let Expr::Call(call) = &step.expr else {
        return false;
    };
    match call.func_name.as_str() {
        operators::ADD => match call.args.as_slice() {
            [accumulated, appended] => {
                let accumulates = matches!(
                    &accumulated.expr,
                    Expr::Ident(name) if *name == comprehension.accu_var
                );
                let own = matches!(
                    &appended.expr,
                    Expr::List(list) if matches!(
                        list.elements.as_slice(),
                        [IdedExpr { expr: Expr::Ident(name), .. }] if *name == comprehension.iter_var
                    )
                );
                let list = matches!(&appended.expr, Expr::List(_));
                accumulates && list && !own
            }
            _ => false,
        },
        operators::CONDITIONAL => call
            .args
            .iter()
            .any(|part| appends_other_than_its_variable(part, comprehension)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> ExpressionError {
        Expression::new(text).expect_err(text)
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let rows = [
            ("args.amount >", 1, 14),
            ("args.a &&\n args.b ==", 2, 11),
            ("", 1, 1),
        ];
        for (text, line, column) in rows {
            match refused(text) {
                ExpressionError::Syntax {
                    line: found_line,
                    column: found_column,
                    message,
                } => {
                    assert_eq!(
                        (found_line, found_column),
                        (line, column),
                        "{text}: {message}"
                    );
                }
                other => panic!("{text}: {other}"),
            }
        }
        assert_eq!(
            refused("arg.amount > 1"),
            ExpressionError::UnknownVariable("arg".to_owned())
        );
        assert_eq!(
            refused("args.a.exists(x, y == x)"),
            ExpressionError::UnknownVariable("y".to_owned())
        );
        assert_eq!(
            refused("args.a.matches('(a*)*')"),
            ExpressionError::UnknownFunction("matches".to_owned())
        );
        assert_eq!(
            refused("my_function(args.a)"),
            ExpressionError::UnknownFunction("my_function".to_owned())
        );
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for text in [
            "1",
            "'yes'",
            "null",
            "[args.a]",
            "{'a': true}",
            "args",
            "principal",
            "roles",
            "args.a + 1",
            "-args.a",
            "size(args.a)",
            "string(args.a)",
            "args.a ? 1 : true",
            "args.a.filter(x, x > 1)",
        ] {
            assert_eq!(refused(text), ExpressionError::NotBoolean, "{text}");
        }
        for text in [
            "true",
            "args.a",
            "args['a']",
            "has(args.a)",
            "!args.a",
            "args.a in [1, 2]",
            "args.a ? args.b : false",
            "args.a.exists(x, x > 1)",
            "args.a.all(x, x > 1)",
            "principal.startsWith('a')",
            "bool(args.a)",
        ] {
            assert!(Expression::new(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn the_arguments_that_are_read_are_known() {
        let rows: [(&str, &[&str]); 11] = [
            ("args.a > 1 && args.b.c == args.b.d", &["a", "b"]),
            ("has(args.a) && !(args.a in ['args'])", &["a"]),
            ("args['a b'] == 1 || 'c' in args", &["a b", "c"]),
            ("args.xs.all(x, x.id != args.own)", &["own", "xs"]),
            ("args.xs.exists(args, args.y)", &["xs"]),
            ("{'k': args.a}['k'] == [args.b][0]", &["a", "b"]),
            ("principal.startsWith('a') ? args.a : false", &["a"]),
            ("args[principal] == 1", &[]),
            ("size(args.a.b) > 1", &["a"]),
            ("args.exists(k, k == 'a' || k in ['b'])", &["a", "b"]),
            ("args.xs.exists(k, k == 'a')", &["xs"]),
        ];
        for (text, names) in rows {
            let expression = Expression::new(text).unwrap();
            let found: Vec<_> = expression.arguments().into_iter().collect();
            assert_eq!(found, names, "{text}");
        }
    }

    #[test]
    fn names_that_are_compared_are_known() {
        type Names<'a> = (&'a [(&'a str, bool)], &'a [&'a str]);
        let rows: [(&str, Names<'_>); 8] = [
            ("capability == 'tool/a'", (&[("tool/a", false)], &[])),
            ("!('tool/a' != capability)", (&[("tool/a", false)], &[])),
            (
                "args.x > 1 && capability in ['tool/a', 'tool/b']",
                (&[("tool/a", false), ("tool/b", false)], &[]),
            ),
            ("capability.startsWith('tool/')", (&[("tool/", true)], &[])),
            ("'teller' in roles", (&[], &["teller"])),
            ("roles.exists(r, r == 'teller')", (&[], &["teller"])),
            ("args.a.exists(capability, capability == 'x')", (&[], &[])),
            ("args.a == 'x' || principal == 'ana'", (&[], &[])),
        ];
        for (text, (capabilities, roles)) in rows {
            let expression = Expression::new(text).unwrap();
            let found = expression.compared();
            let found: (Vec<_>, Vec<_>) = (
                found.capabilities.into_iter().collect(),
                found.roles.into_iter().collect(),
            );
            assert_eq!(found, (capabilities.to_vec(), roles.to_vec()), "{text}");
        }
    }

    #[test]
    fn what_could_take_long_is_refused() {
        let rows = [
            (
                "args.a.all(x, args.b.exists(y, x == y))",
                ExpressionError::NestedLoop,
            ),
            (
                "args.a.filter(x, args.b.all(y, y)).size() > 0",
                ExpressionError::NestedLoop,
            ),
            ("args.a.map(x, [x, x]).size() > 0", ExpressionError::Map),
            (
                "args.a.map(x, x > 1, args.a).size() > 0",
                ExpressionError::Map,
            ),
        ];
        for (text, error) in rows {
            assert_eq!(refused(text), error, "{text}");
        }
        for text in [
            "args.a.filter(x, x > 1).all(x, x < 9)",
            "args.a.all(x, x in args.b) && args.b.exists_one(x, x == 1)",
            "has(args.a) ? args.a > 1 : false",
        ] {
            assert!(
                Expression::new(text).is_ok(),
                "{text}: {:?}",
                Expression::new(text).err()
            );
        }
    }

    /// A test's thread has a stack of 2 MiB, as the threads of a server have.
    #[test]
    fn nothing_in_a_file_can_overflow_the_stack_or_take_long() {
        let long = |part: &str| part.repeat(MAX_EXPRESSION_BYTES / part.len());
        let texts = [
            long("("),
            long("["),
            long("{"),
            long("!"),
            long("-"),
            long("args."),
            long("args[0]"),
            long("args.a.all(x,"),
            long("1+"),
            long("1+") + "1",
            long("true&&"),
            long("true||false&&"),
            long("a?b:"),
            long("a?"),
            long("'"),
            long("\""),
            long("\\"),
            long("x.y("),
            long("1<"),
            long("1 in "),
            long(")"),
            long("💥"),
            long("a b "),
            format!("{}1{}", "(".repeat(16), ")".repeat(16)),
            format!("{}args", "!".repeat(2_000)),
            format!("1{}", "+1".repeat(1_000)),
            format!("args{}", ".a".repeat(1_000)),
            format!("args{}", "[0]".repeat(600)),
            "\0".to_owned(),
            "a".repeat(MAX_EXPRESSION_BYTES + 1),
        ];
        for text in texts {
            let _ = Expression::new(&text);
        }
    }
}
