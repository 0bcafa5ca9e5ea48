"""Every message that crosses a process, and its wire form."""
