module github.com/allocscope/allocscope

go 1.26
