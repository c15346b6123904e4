package appid

const MaxDepth = 32
