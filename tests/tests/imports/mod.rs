//! Which files of a crate import which, and where they do so in a circle.
//!
//! A name is followed through every `use` and re-export to the file that it is from. A file that only names a module
//! imports nothing yet: what it then takes from that module counts. A module that only re-exports what its children
//! have does not import them.

pub(crate) mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use tokens::{is_name, tokens, without_tests};

/// What files take from each other: the names, by who takes them and from whom.
pub(crate) type Imports = BTreeMap<(String, String), BTreeSet<String>>;

/// A module: a file, or a block in one.
#[derive(Default)]
struct Module {
    file: String,
    items: BTreeSet<String>,
    uses: Vec<Use>,
    /// Paths in the code, outside any `use`.
    paths: Vec<Vec<String>>,
    /// Words in the code that can name what a `use` brought.
    words: BTreeSet<String>,
}

/// One name that a `use` brings, or all names of a module.
#[derive(Clone)]
struct Use {
    path: Vec<String>,
    /// `None`: all that is in the module.
    name: Option<String>,
    /// Whether it is there for others.
    public: bool,
}

/// Where a path leads to.
#[derive(Clone, Debug, PartialEq)]
enum Found {
    Module(Vec<String>),
    /// The file that has it.
    Item(String),
}

/// The modules of a crate, by their path.
#[derive(Default)]
struct Tree {
    modules: BTreeMap<Vec<String>, Module>,
}

/// Imports among `files` of one crate: paths from `src` on, and texts.
pub(crate) fn imports(files: &[(String, String)]) -> Imports {
    let mut tree = Tree::default();
    let library = files.iter().any(|(path, _)| path == "lib.rs");
    let mut tests = Vec::new();
    for (path, text) in files {
        // Programs import the library of their package as anybody else does.
        if path.starts_with("bin/") || (library && path == "main.rs") {
            continue;
        }
        let module = module_of(path);
        let (tokens, only_for_tests) = without_tests(&tokens(text));
        tests.extend(only_for_tests.into_iter().map(|name| [module.clone(), vec![name]].concat()));
        Reader { tokens: &tokens, at: 0, file: path, tree: &mut tree }.module(&module);
    }
    tests.extend(tree.modules.keys().filter(|module| module.last().is_some_and(|name| name == "tests")).cloned());
    tree.modules.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
    tree.imports()
}

/// Circles in `imports`: what each file of them takes from the others.
pub(crate) fn circles(imports: &Imports) -> Vec<Imports> {
    let mut reached: BTreeMap<&String, BTreeSet<&String>> = BTreeMap::new();
    for (from, to) in imports.keys() {
        reached.entry(from).or_default().insert(to);
    }
    let files: Vec<&String> = reached.keys().copied().collect();
    for through in &files {
        let further = reached[through].clone();
        for onward in reached.values_mut().filter(|onward| onward.contains(through)) {
            onward.extend(&further);
        }
    }
    let together = |a: &String, b: &String| {
        let reaches = |a, b| reached.get(a).is_some_and(|all| all.contains(b));
        reaches(a, b) && reaches(b, a)
    };
    let mut circles: BTreeMap<&String, Imports> = BTreeMap::new();
    for ((from, to), names) in imports.iter().filter(|((from, to), _)| together(from, to)) {
        let first = files.iter().find(|file| together(file, from)).expect("a file is in its own circle");
        circles.entry(first).or_default().insert((from.clone(), to.clone()), names.clone());
    }
    circles.into_values().collect()
}

/// `a/b.rs` and `a/b/mod.rs` are `a::b`.
fn module_of(path: &str) -> Vec<String> {
    let mut module: Vec<String> = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|last| last == "mod") || path == "lib.rs" || path == "main.rs" {
        module.pop();
    }
    module
}

/// Reads the tokens of one file.
struct Reader<'a> {
    tokens: &'a [String],
    at: usize,
    file: &'a str,
    tree: &'a mut Tree,
}

impl Reader<'_> {
    /// Up to the end of the module that `path` names.
    fn module(&mut self, path: &[String]) {
        let mut module = Module { file: self.file.to_owned(), ..Module::default() };
        let mut depth = 0;
        while let Some(token) = self.tokens.get(self.at) {
            let before = self.at.checked_sub(1).map_or("", |before| &self.tokens[before]);
            let next = self.peek(1);
            match token.as_str() {
                "mod" if depth == 0 && is_name(next) && self.peek(2) == "{" => {
                    let inner = [path, &[next.to_owned()]].concat();
                    self.at += 3;
                    self.module(&inner);
                    continue;
                }
                // A file that declares another does not import it.
                "mod" => self.at += 1,
                "use" => {
                    // After `pub`, or after the bracket of `pub(crate)`; `pub(super)` is for the family alone.
                    let public = before == "pub" || (before == ")" && self.back(2) == "crate" && self.back(4) == "pub");
                    self.at += 1;
                    self.leaves(&[], public, &mut module.uses);
                }
                "{" => depth += 1,
                "}" if depth == 0 => {
                    self.at += 1;
                    break;
                }
                "}" => depth -= 1,
                "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" | "union" if depth == 0 => {
                    module.items.insert(next.to_owned());
                }
                word if is_name(word) && before != "::" && before != "." => {
                    let path = self.path();
                    module.words.insert(path[0].clone());
                    if path.len() > 1 {
                        self.at += 2 * (path.len() - 1);
                        module.paths.push(path);
                    }
                }
                _ => (),
            }
            self.at += 1;
        }
        self.tree.modules.insert(path.to_vec(), module);
    }

    /// The names that a `use` brings, from its first word on; ends at what follows them.
    fn leaves(&mut self, prefix: &[String], public: bool, uses: &mut Vec<Use>) {
        let path = match self.peek(0) {
            "{" | "*" => prefix.to_vec(),
            _ => [prefix, &self.path()].concat(),
        };
        self.at += 2 * (path.len() - prefix.len());
        self.at -=
            usize::from(path.len() > prefix.len() && self.tokens.get(self.at - 1).is_none_or(|mark| mark != "::"));
        match self.peek(0) {
            "*" => {
                self.at += 1;
                uses.push(Use { path, name: None, public });
            }
            "{" => {
                while self.peek(0) != "}" {
                    self.at += 1;
                    if self.peek(0) != "}" {
                        self.leaves(&path, public, uses);
                    }
                }
                self.at += 1;
            }
            next => {
                let renamed = (next == "as").then(|| self.peek(1).to_owned());
                self.at += 2 * usize::from(renamed.is_some());
                let mut path = path;
                if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
                    path.pop();
                }
                let name = renamed.or_else(|| path.last().cloned());
                uses.push(Use { path, name, public });
            }
        }
    }

    /// The path that begins here.
    fn path(&self) -> Vec<String> {
        let mut path = vec![self.peek(0).to_owned()];
        while self.peek(2 * path.len() - 1) == "::" && is_name(self.peek(2 * path.len())) {
            path.push(self.peek(2 * path.len()).to_owned());
        }
        path
    }

    fn peek(&self, ahead: usize) -> &str {
        self.tokens.get(self.at + ahead).map_or("", String::as_str)
    }

    fn back(&self, behind: usize) -> &str {
        self.at.checked_sub(behind).map_or("", |at| &self.tokens[at])
    }
}

impl Tree {
    fn imports(&self) -> Imports {
        let mut imports = Imports::new();
        for (at, module) in &self.modules {
            let mut add = |found: Option<Found>, name: &str| match found {
                Some(Found::Item(file)) if file != module.file => {
                    imports.entry((module.file.clone(), file)).or_default().insert(name.to_owned());
                }
                _ => (),
            };
            for one in &module.uses {
                match &one.name {
                    Some(name) => {
                        let only_passed_on = one.public && !module.words.contains(name) && self.is_child(at, &one.path);
                        if !only_passed_on {
                            add(self.find(at, &one.path, 0), one.path.last().unwrap_or(name));
                        }
                    }
                    None => {
                        if let Some(Found::Module(from)) = self.find(at, &one.path, 0) {
                            for word in module.words.iter().filter(|word| self.has(&from, word)) {
                                add(self.find(&from, &["self".to_owned(), word.clone()], 0), word);
                            }
                        }
                    }
                }
            }
            for path in &module.paths {
                add(self.find(at, path, 0), &path[1..].join("::"));
            }
        }
        imports
    }

    /// Whether `path` leads down from `at`.
    fn is_child(&self, at: &[String], path: &[String]) -> bool {
        let first = path.iter().find(|part| *part != "self");
        first.is_some_and(|first| self.modules.contains_key(&[at, std::slice::from_ref(first)].concat()))
    }

    /// Whether the module `at` has `name`, of its own or from elsewhere.
    fn has(&self, at: &[String], name: &str) -> bool {
        let module = &self.modules[at];
        module.items.contains(name) || module.uses.iter().any(|one| one.name.as_deref() == Some(name))
    }

    /// What `path` means in the module `at`; `None` for what is not of this crate. `deep`: how many names it went through.
    fn find(&self, at: &[String], path: &[String], deep: usize) -> Option<Found> {
        let (first, mut rest) = path.split_first()?;
        let mut here = match first.as_str() {
            "crate" => vec![],
            "self" => at.to_vec(),
            "super" => at.split_last()?.1.to_vec(),
            name => match self.step(at, name, rest.is_empty(), deep)? {
                Found::Module(next) => next,
                Found::Item(file) => return Some(Found::Item(file)),
            },
        };
        while let Some((name, others)) = rest.split_first() {
            rest = others;
            if name == "super" {
                here.pop();
                continue;
            }
            // What nobody is seen to define is made by a macro there, or belongs to a type.
            match self.step(&here, name, rest.is_empty(), deep) {
                Some(Found::Module(next)) => here = next,
                Some(item) => return Some(item),
                None if self.has(&here, name) => return None,
                None => return Some(Found::Item(self.modules.get(&here)?.file.clone())),
            }
        }
        Some(Found::Module(here))
    }

    /// What `name` means in the module `at`. As the last of a path it is rather an item than the module of that name.
    fn step(&self, at: &[String], name: &str, last: bool, deep: usize) -> Option<Found> {
        let module = self.modules.get(at)?;
        let child = [at, &[name.to_owned()]].concat();
        let child = self.modules.contains_key(&child).then_some(Found::Module(child));
        if let Some(child) = child.clone().filter(|_| !last) {
            return Some(child);
        }
        if module.items.contains(name) {
            return Some(Found::Item(module.file.clone()));
        }
        let next = |one: &Use| (deep < 16).then(|| self.find(at, &one.path, deep + 1)).flatten();
        if let Some(one) = module.uses.iter().find(|one| one.name.as_deref() == Some(name)) {
            // A name of another crate is no name of this one, unless it is its own.
            return if one.path.len() == 1 && one.path[0] == name { child } else { next(one) };
        }
        let from_all = || {
            module.uses.iter().filter(|one| one.name.is_none()).find_map(|one| match next(one)? {
                Found::Module(from) if from != at && self.has(&from, name) => self.step(&from, name, last, deep + 1),
                _ => None,
            })
        };
        child.or_else(from_all)
    }
}
