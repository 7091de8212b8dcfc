/// Command-line arguments, taken one by one; what is left at the end is an error.
pub struct Args {
    v: Vec<String>,
}
impl Args {
    pub fn new(v: Vec<String>) -> Self {
        Args { v }
    }
    pub fn flag(&mut self, name: &str) -> bool {
        match self.v.iter().position(|a| a == name) {
            Some(i) => {
                self.v.remove(i);
                true
            }
            None => false,
        }
    }
    pub fn opt(&mut self, name: &str) -> Option<String> {
        let i = self.v.iter().position(|a| a == name)?;
        if i + 1 >= self.v.len() {
            return None;
        }
        self.v.remove(i);
        Some(self.v.remove(i))
    }
    pub fn req(&mut self, name: &str) -> Result<String, String> {
        self.opt(name).ok_or_else(|| format!("{name} is required"))
    }
    pub fn num(&mut self, name: &str, default: u64) -> Result<u64, String> {
        match self.opt(name) {
            None => Ok(default),
            Some(s) => s
                .replace('_', "")
                .parse()
                .map_err(|_| format!("{name} {s}: not a number")),
        }
    }
    pub fn pos(&mut self, what: &str) -> Result<String, String> {
        match self.v.iter().position(|a| !a.starts_with("--")) {
            Some(i) => Ok(self.v.remove(i)),
            None => Err(format!("{what} is required")),
        }
    }
    pub fn done(&self) -> Result<(), String> {
        if self.v.is_empty() {
            Ok(())
        } else {
            Err(format!("unexpected argument(s): {:?}", self.v))
        }
    }
}
